//! Whether a query wants to know something or to change something, by its first verb. Tools that
//! only read come behind for the one, all others for the other.

/// Sorted, in the forms that people begin a request with.
const READING: [&str; 31] = [
    "are", "check", "compare", "count", "display", "download", "export", "fetch", "find", "get",
    "how", "inspect", "is", "list", "look", "lookup", "query", "read", "retrieve", "search", "see",
    "show", "tell", "view", "watch", "what", "when", "where", "which", "who", "why",
];

const CHANGING: [&str; 86] = [
    "accept",
    "activate",
    "add",
    "append",
    "approve",
    "archive",
    "assign",
    "attach",
    "ban",
    "block",
    "book",
    "cancel",
    "change",
    "clear",
    "close",
    "comment",
    "commit",
    "complete",
    "configure",
    "connect",
    "convert",
    "copy",
    "create",
    "deactivate",
    "decline",
    "delete",
    "deploy",
    "destroy",
    "detach",
    "disable",
    "disconnect",
    "duplicate",
    "edit",
    "enable",
    "end",
    "finish",
    "follow",
    "fork",
    "forward",
    "import",
    "insert",
    "install",
    "invite",
    "join",
    "kick",
    "kill",
    "leave",
    "lock",
    "make",
    "mark",
    "merge",
    "modify",
    "move",
    "new",
    "pause",
    "pay",
    "pin",
    "post",
    "publish",
    "purge",
    "push",
    "put",
    "reboot",
    "register",
    "reject",
    "remove",
    "rename",
    "reply",
    "reset",
    "resize",
    "restart",
    "restore",
    "resume",
    "revert",
    "revoke",
    "run",
    "save",
    "scale",
    "schedule",
    "send",
    "set",
    "share",
    "start",
    "stop",
    "update",
    "upload",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Read,
    Change,
}

/// What the first word says that says it.
pub fn of(words: &[String]) -> Option<Wish> {
    words.iter().find_map(|word| {
        let word = word.as_str();
        if READING.binary_search(&word).is_ok() {
            Some(Wish::Read)
        } else if CHANGING.binary_search(&word).is_ok() {
            Some(Wish::Change)
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_verb_says_what_is_wanted() {
        let wish = |query: &str| {
            let words: Vec<String> = query.split(' ').map(str::to_owned).collect();
            of(&words)
        };
        assert!(READING.is_sorted() && CHANGING.is_sorted());
        assert_eq!(wish("show what was deleted"), Some(Wish::Read));
        assert_eq!(wish("please delete the list"), Some(Wish::Change));
        assert_eq!(wish("stock price"), None);
    }
}
