/// The variables of `ati assist` and of generated manifests, for the reference page: name, default,
/// meaning. Servers read none of them.
pub const VARIABLES: &[(&str, &str, &str)] = &[
    (
        "ANTHROPIC_API_KEY",
        "unset",
        "`ati assist`: the key of Anthropic, which is asked where there is no key of `_llm.toml`.",
    ),
    (
        "ANTHROPIC_BASE_URL",
        "`https://api.anthropic.com`",
        "`ati assist`: where Anthropic's Messages API is.",
    ),
    (
        "ATI_ASSIST_MODEL",
        "`claude-haiku-4-5-20251001`",
        "`ati assist`: the model of Anthropic.",
    ),
    (
        "ATI_ASSIST_PROVIDER",
        "`auto`",
        "`local`: `ati assist` asks the local language model, as with `--local`. `auto`: the first \
         that there is a key for.",
    ),
    (
        "ATI_ASSIST_TIMEOUT_SECONDS",
        "`120`",
        "`ati assist`: how long a language model may send nothing, up to a day.",
    ),
    (
        "ATI_MANIFEST_PROVIDER",
        "unset",
        "`local`, `cerebras` or `anthropic`: the language model that may write the manifest of a \
         skill that is installed. Unset: the first of the two that has a key in the environment.",
    ),
    (
        "ATI_OLLAMA_MODEL",
        "`smollm3:3b`",
        "`ati assist`: the model of the local server.",
    ),
    (
        "CEREBRAS_API_KEY",
        "unset",
        "`ati assist`: the key of the model of `_llm.toml`, before that of the keyring.",
    ),
    (
        "OLLAMA_HOST",
        "`http://localhost:11434`",
        "`ati assist`: the local server, which speaks OpenAI's format.",
    ),
];
