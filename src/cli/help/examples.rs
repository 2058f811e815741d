//! Lines to type, by command. A test of the help texts parses each of them.

pub const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "ati",
        &[
            "ati init --example                     # a tool and a route to try, and what to type",
            "ati tool search \"stock price\"          # which tools are there?",
            "ati run market:quote --symbol AAPL     # call one",
        ],
    ),
    (
        "ati run",
        &[
            "ati run market:quote --help",
            "ati run market:quote --symbol AAPL",
            "ati run market:search --query \"red hat\" --limit 5 --output table",
        ],
    ),
    (
        "ati explain",
        &[
            "ati explain tool gh:repo_delete --repository o/r",
            "ati explain request GET /openai/v1/models",
        ],
    ),
    (
        "ati explain tool",
        &[
            "ati explain tool gh:repo_delete --repository o/r",
            "ati --output text explain tool --conf /etc/ati/ati.toml market:quote --symbol AAPL",
        ],
    ),
    (
        "ati explain request",
        &[
            "ati explain request GET /openai/v1/models",
            "ati explain request POST https://ati.example.com/call --unsigned",
        ],
    ),
    (
        "ati sign",
        &["ati sign GET https://ati.example.com/openai/v1/models"],
    ),
    ("ati status", &["ati status", "ati -J status"]),
    ("ati reload", &["ati reload"]),
    ("ati tool", &["ati tool list", "ati tool info market:quote"]),
    (
        "ati tool list",
        &[
            "ati tool list",
            "ati --output table tool list --provider github",
        ],
    ),
    (
        "ati tool info",
        &["ati --output text tool info market:quote"],
    ),
    (
        "ati tool export",
        &[
            "ati tool export --atip",
            "ati tool export --atip --provider github > github.json",
        ],
    ),
    ("ati tool search", &["ati tool search insider trades"]),
    (
        "ati tool stubs",
        &[
            "ati tool stubs --lang py > tools.py",
            "ati tool stubs --lang ts --provider github > github.ts",
        ],
    ),
    ("ati prompt", &["ati prompt >> AGENTS.md"]),
    (
        "ati provider",
        &[
            "ati provider list",
            "ati provider import-openapi https://petstore3.swagger.io/api/v3/openapi.json",
        ],
    ),
    (
        "ati provider add-mcp",
        &[
            "ati provider add-mcp linear --transport http --url https://mcp.linear.app/mcp \\\n      \
             --auth bearer --auth-key linear_key",
            "ati provider add-mcp files --transport stdio --command npx --args -y \\\n      \
             --args @modelcontextprotocol/server-filesystem --args /srv/files",
        ],
    ),
    (
        "ati provider add-cli",
        &["ati provider add-cli gh --command gh --env 'GH_TOKEN=${github_token}'"],
    ),
    (
        "ati provider import-openapi",
        &[
            "ati provider import-openapi https://petstore3.swagger.io/api/v3/openapi.json",
            "ati provider import-openapi ./billing.yaml --name billing --dry-run",
        ],
    ),
    (
        "ati provider inspect-openapi",
        &[
            "ati provider inspect-openapi ./billing.yaml",
            "ati -J provider inspect-openapi ./billing.yaml --include-tags invoices",
        ],
    ),
    (
        "ati provider list",
        &[
            "ati --output table provider list",
            "ati provider list --live",
        ],
    ),
    (
        "ati provider scan",
        &[
            "ati provider scan",
            "ati provider scan --probe --path ~/.local/bin",
        ],
    ),
    ("ati provider info", &["ati provider info github"]),
    ("ati provider remove", &["ati provider remove billing"]),
    (
        "ati provider load",
        &[
            "ati provider load https://petstore3.swagger.io/api/v3/openapi.json --ttl 600",
            "ati provider load --mcp --transport http --url https://mcp.linear.app/mcp",
        ],
    ),
    (
        "ati provider unload",
        &["ati provider unload petstore3_swagger"],
    ),
    (
        "ati provider validate",
        &["ati provider validate ~/.ati/manifests/*.toml --strict"],
    ),
    (
        "ati provider schema",
        &["ati provider schema > manifest.schema.json"],
    ),
    ("ati auth", &["ati auth status"]),
    ("ati auth status", &["ati --output text auth status"]),
    (
        "ati audit",
        &[
            "ati audit tail",
            "ati audit search --since 1h",
            "ati audit verify",
        ],
    ),
    (
        "ati audit tail",
        &[
            "ati audit tail -n 50",
            "ati --output text audit tail -f --status error",
        ],
    ),
    (
        "ati audit search",
        &[
            "ati audit search --tool 'github:*' --since 7d",
            "ati audit search --job job-42 --status 429",
        ],
    ),
    (
        "ati audit verify",
        &[
            "ati audit verify",
            "ati audit verify audit.jsonl.1 audit.jsonl",
        ],
    ),
    (
        "ati proxy",
        &[
            "ati proxy --enable-passthrough --admin 127.0.0.1:9090",
            "ati proxy --conf /etc/ati/ati.toml --sig-verify-mode enforce",
        ],
    ),
    (
        "ati check",
        &[
            "ati check",
            "ati --output text check --conf /etc/ati/ati.toml --strict",
        ],
    ),
    (
        "ati doctor",
        &[
            "ati doctor",
            "ati -J doctor --conf /etc/ati/ati.toml --offline",
        ],
    ),
    (
        "ati demo",
        &[
            "ati demo             # until Ctrl-C, with lines to paste",
            "ati demo --check     # sends them itself",
        ],
    ),
    (
        "ati init",
        &["ati init", "ati init --example", "ati init --proxy --es256"],
    ),
    (
        "ati credential",
        &[
            "ati credential set github_token --customer acme < token.txt",
            "ati credential list --customer acme",
        ],
    ),
    (
        "ati credential set",
        &[
            "ati credential set github_token --customer acme < token.txt",
            "ati credential set gcp_credentials --customer acme --file account.json",
            "ati credential set github_token",
        ],
    ),
    (
        "ati credential list",
        &["ati credential list --output json"],
    ),
    (
        "ati credential remove",
        &["ati credential remove github_token --customer acme"],
    ),
    ("ati admin", &["ati admin rewrap"]),
    (
        "ati admin rewrap",
        &["ATI_MASTER_KEY=$NEW ATI_MASTER_KEY_OLD=$OLD ati admin rewrap"],
    ),
    ("ati key", &["ati key set github_token -", "ati key list"]),
    (
        "ati key set",
        &[
            "ati key set github_token - < token.txt",
            "ati key set github_token ghp_abc123",
        ],
    ),
    ("ati key list", &["ati key list", "ati -J key list"]),
    ("ati key remove", &["ati key remove github_token"]),
    (
        "ati admin",
        &["ati admin keys issue user-42 job-7 --provider github"],
    ),
    (
        "ati admin keys",
        &[
            "ati admin keys issue user-42 job-7 --provider github --expires-in 3600",
            "ati admin keys revoke --user user-42",
        ],
    ),
    (
        "ati admin keys issue",
        &[
            "ati admin keys issue user-42 job-7 --provider github --expires-in 3600",
            "ati admin keys issue user-42 job-8 --tool 'market:*' --rate 'tool:market:*=10/hour'",
        ],
    ),
    ("ati admin keys list", &["ati admin keys list user-42"]),
    (
        "ati admin keys show",
        &["ati admin keys show 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"],
    ),
    (
        "ati admin keys revoke",
        &[
            "ati admin keys revoke 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
            "ati admin keys revoke --user user-42 --alias-prefix job- --by night-shift",
        ],
    ),
    (
        "ati edge",
        &[
            "ati edge bootstrap-keyring --vault Production --item ati-edge",
            "ati edge keyring list",
        ],
    ),
    (
        "ati edge bootstrap-keyring",
        &[
            "ati edge bootstrap-keyring --vault Production --item ati-edge",
            "ati edge bootstrap-keyring --ati-dir /var/lib/ati --from-file - < secrets.json",
        ],
    ),
    (
        "ati edge rotate-keyring",
        &[
            "ati edge rotate-keyring --vault Production --item ati-edge",
            "ati edge rotate-keyring --from-file secrets.json --verify http://127.0.0.1:9090",
        ],
    ),
    (
        "ati edge keyring",
        &["ati edge keyring list", "ati edge keyring fingerprint"],
    ),
    (
        "ati edge keyring list",
        &["ati edge keyring list --ati-dir /var/lib/ati"],
    ),
    (
        "ati edge keyring diff",
        &["ati edge keyring diff --from-file secrets.json"],
    ),
    (
        "ati edge keyring fingerprint",
        &["ati edge keyring fingerprint --ati-dir /var/lib/ati"],
    ),
    (
        "ati edge keyring set",
        &["ati edge keyring set github_token < token.txt"],
    ),
    (
        "ati edge keyring remove",
        &["ati edge keyring remove github_token"],
    ),
    (
        "ati token",
        &["ati token issue --sub agent-7 --scope 'tool:github:*'"],
    ),
    (
        "ati token keygen",
        &["ati token keygen", "ati token keygen --algorithm HS256"],
    ),
    (
        "ati token issue",
        &[
            "ati token issue --sub agent-7 --scope 'tool:github:* help' --ttl 1h",
            "ati token issue --sub agent-7 --scope 'tool:*' --rate 'tool:*=100/hour'",
        ],
    ),
    (
        "ati token rotate-file",
        &[
            "ati token rotate-file /run/ati/session_token --sub agent-7 --scope 'tool:github:*'",
            "ati token rotate-file ./token --every 5m --ttl 15m --sub agent-7 --scope 'tool:*'",
        ],
    ),
    (
        "ati token inspect",
        &["ati token inspect \"$ATI_SESSION_TOKEN\""],
    ),
    (
        "ati token validate",
        &["ati token validate \"$ATI_SESSION_TOKEN\""],
    ),
    ("ati version", &["ati version", "ati -J version"]),
    (
        "ati completions",
        &[
            "source <(ati completions bash)",
            "ati completions zsh > ~/.zfunc/_ati",
            "ati completions fish > ~/.config/fish/completions/ati.fish",
        ],
    ),
    ("ati mcp", &["ati mcp serve # what an MCP client starts"]),
    ("ati runfile", &["ati runfile inspect"]),
    (
        "ati runfile inspect",
        &["ati runfile inspect", "ati runfile inspect ~/project"],
    ),
    (
        "ati mcp serve",
        &[
            "ati mcp serve",
            "ATI_PROXY_URL=https://ati.example.com ati mcp serve --search",
            "ati mcp serve --search",
            "ati mcp serve --runfile ~/project/Runfile --readonly",
        ],
    ),
    (
        "ati man",
        &[
            "ati man | man -l -",
            "ati man token issue | man -l -",
            "ati man --dir /usr/local/share/man/man1",
        ],
    ),
];
