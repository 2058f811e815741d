//! Lines to type, by command. A test of the help texts parses each of them.

pub const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "ati assist",
        &[
            "ati assist \"do we have a tool for stock prices?\"",
            "ati assist finnhub \"quote and insiders for AAPL\"",
            "ati assist --save plan.json finnhub \"quote and insider activity for AAPL\"",
            "ati assist --local gh \"how do I create a pull request?\"",
        ],
    ),
    ("ati plan", &["ati plan execute plan.json --dry-run"]),
    (
        "ati plan execute",
        &[
            "ati plan execute plan.json --dry-run     # what would it do?",
            "ati plan execute plan.json --confirm-each",
            "ati plan execute plan.json --from 3      # whatever the journal says",
        ],
    ),
];
