//! What commands of an answer may be, apart from calls of tools.

use super::shell::Word;

/// Programs that no answer about tools has a reason to run. Words that prose has, too, aren't among
/// them.
const FOREIGN: &str = "apt apt-get awk base64 bash brew bun cargo cat chmod chown cp crontab curl \
                       dd deno docker env eval exec export ftp gem git gunzip kubectl mkdir mv nc \
                       ncat node nohup npm npx openssl perl php pip pip3 pipx pnpm podman \
                       powershell printenv python python3 rm rsync ruby scp sed sh socat source \
                       ssh sudo systemctl tar telnet uv uvx wget yarn zsh";

/// Commands of `ati` that look and change nothing.
pub const LOOKING: [&str; 27] = [
    "assist",
    "auth status",
    "help",
    "man",
    "provider info",
    "provider list",
    "skill fetch cat",
    "skill fetch catalog",
    "skill fetch read",
    "skill fetch ref",
    "skill fetch refs",
    "skill fetch resources",
    "skill info",
    "skill list",
    "skill read",
    "skill resolve",
    "skill search",
    "skill show",
    "skillati cat",
    "skillati catalog",
    "skillati read",
    "skillati ref",
    "skillati refs",
    "skillati resources",
    "tool info",
    "tool list",
    "tool search",
];

/// Commands that change this machine. They aren't shown in a sentence either.
pub const CHANGING: [&str; 16] = [
    "credential remove",
    "credential set",
    "key remove",
    "key set",
    "plan execute",
    "provider add-cli",
    "provider add-mcp",
    "provider import-openapi",
    "provider install-skills",
    "provider load",
    "provider remove",
    "provider unload",
    "skill init",
    "skill install",
    "skill remove",
    "skill update",
];

pub fn is_foreign(program: &str) -> bool {
    FOREIGN.split_whitespace().any(|known| known == program)
}

/// Whether the words behind `ati` change this machine, by name.
pub fn is_changing(words: &[Word]) -> bool {
    let path = path(words);
    CHANGING.iter().any(|known| begins(&path, known))
}

/// Checks the words behind `ati` where they run no tool.
pub fn check(words: &[Word]) -> Result<(), String> {
    let has = |option: &str| {
        let is_it = |word: &Word| word.text.split('=').next() == Some(option);
        words.iter().any(is_it)
    };
    let path = path(words);
    let (Some(command), second) = (path.first().copied(), path.get(1).copied()) else {
        return Ok(());
    };
    if has("--help") || has("-h") || has("--version") || command == "version" {
        return Ok(());
    }
    let is_looking = LOOKING.iter().any(|known| begins(&path, known));
    // These two write files where an option says so.
    let writes = match command {
        "assist" => has("--save"),
        "man" => words.iter().any(|word| word.text.starts_with('-')),
        _ => false,
    };
    if is_looking && !writes || begins(&path, "plan execute") && has("--dry-run") {
        return Ok(());
    }
    let group = |known: &&str| known.split_once(' ').map(|(group, _)| group) == Some(command);
    let has_looking = LOOKING.iter().any(group);
    match second {
        // It prints what there is.
        None if has_looking || CHANGING.iter().any(group) => Ok(()),
        Some(second) if has_looking => Err(format!("'ati {command} {second}' runs no tool")),
        _ => Err(format!("'ati {command}' runs no tool")),
    }
}

/// The first words that are no options, with the names that the manual has for them.
fn path(words: &[Word]) -> Vec<&str> {
    let names = words.iter().map(|word| word.text.as_str());
    let names = names.filter(|word| !word.starts_with('-'));
    names
        .enumerate()
        .map(|(at, name)| match (at, name) {
            (0, "tools") => "tool",
            (0, "skills") => "skill",
            (1, "show") if words.first().is_some_and(|first| first.text == "auth") => "status",
            (_, name) => name,
        })
        .take(3)
        .collect()
}

fn begins(path: &[&str], known: &str) -> bool {
    let mut given = path.iter();
    known.split(' ').all(|word| given.next() == Some(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assist::shell;

    fn words(line: &str) -> Vec<Word> {
        shell::commands(line).unwrap().remove(0)
    }

    #[test]
    fn what_changes_this_machine_is_not_looking() {
        for good in [
            "tool",
            "tools list --provider market",
            "tool info market:quote",
            "skills show x",
            "auth show",
            "plan execute plan.json --dry-run",
            "skill install --help",
            "assist 'a price?'",
            "man tool",
            "version",
            "--version",
        ] {
            assert_eq!(check(&words(good)), Ok(()), "{good}");
            assert!(good.contains("--") || !is_changing(&words(good)), "{good}");
        }
        for (bad, why) in [
            ("plan execute x.json", "'ati plan' runs no tool"),
            ("skill install http://x", "'ati skill install' runs no tool"),
            ("skills --force remove x", "'ati skill remove' runs no tool"),
            ("tool nonsense", "'ati tool nonsense' runs no tool"),
            ("assist --save=x y", "'ati assist' runs no tool"),
            ("key list", "'ati key' runs no tool"),
            ("proxy", "'ati proxy' runs no tool"),
        ] {
            assert_eq!(check(&words(bad)), Err(why.to_owned()), "{bad}");
        }
        assert!(is_changing(&words("skill install http://x")));
    }
}
