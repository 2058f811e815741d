//! Lines to type, by command. A test of the help texts parses each of them.

pub const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "ati skillati",
        &[
            "ati skillati catalog --search \"sanctions lists\"",
            "ATI_SKILL_REGISTRY=gcs://my-skills ati skillati read fal-generate --output text",
        ],
    ),
    (
        "ati skillati catalog",
        &["ati skillati catalog --search \"image generation\" --output text"],
    ),
    (
        "ati skillati read",
        &["ati skillati read fal-generate --output text"],
    ),
    (
        "ati skillati resources",
        &["ati skillati resources fal-generate --prefix references/"],
    ),
    (
        "ati skillati cat",
        &[
            "ati skillati cat fal-generate scripts/generate.sh --output text",
            "ati skillati cat fal-generate ../fal-models/references/list.md",
        ],
    ),
    ("ati skillati refs", &["ati skillati refs fal-generate"]),
    (
        "ati skillati ref",
        &["ati skillati ref fal-generate usage.md --output text"],
    ),
    (
        "ati skillati build-index",
        &[
            "ati skillati build-index ./skills --output-file catalog.v1.json",
            "ati skillati build-index --source-dir ./skills",
        ],
    ),
];
