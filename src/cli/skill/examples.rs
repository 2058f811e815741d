//! Lines to type, by command. A test of the help texts parses each of them.

pub const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "ati skill",
        &["ati skill list", "ati skill read google-workspace"],
    ),
    (
        "ati skill list",
        &[
            "ati --output text skill list",
            "ati skill list --provider github",
        ],
    ),
    (
        "ati skill show",
        &["ati skill show google-workspace --refs"],
    ),
    ("ati skill search", &["ati skill search send mail"]),
    (
        "ati skill info",
        &["ati --output text skill info google-workspace"],
    ),
    (
        "ati skill read",
        &[
            "ati skill read google-workspace --with-refs",
            "ati skill read --tool google_workspace",
        ],
    ),
    (
        "ati skill resolve",
        &[
            "ati skill resolve",
            "ati skill resolve --scopes scopes.json",
        ],
    ),
    (
        "ati skill install",
        &[
            "ati skill install google-workspace",
            "ati skill install ./my-skill/",
            "ati skill install https://github.com/org/repo@abc1234#skill-name",
            "ati skill install https://github.com/org/repo --all",
        ],
    ),
    ("ati skill remove", &["ati skill remove my-skill"]),
    (
        "ati skill init",
        &["ati skill init my-skill --tools github:search,github:read"],
    ),
    (
        "ati skill validate",
        &["ati skill validate my-skill --check-tools"],
    ),
    (
        "ati skill verify",
        &["ati skill verify my-skill", "ati skill verify"],
    ),
    ("ati skill diff", &["ati skill diff my-skill"]),
    ("ati skill update", &["ati skill update my-skill"]),
    (
        "ati provider install-skills",
        &["ati provider install-skills google_workspace"],
    ),
];
