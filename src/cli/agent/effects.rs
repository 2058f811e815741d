//! What each command does. A test asks for a row for every command that does something.

use crate::catalog::effects::{Cost, Effects, Estimate, Filesystem, Input, Interactive};

/// The effects of a command, by its words. A row holds for the commands below it, too, unless they
/// have their own.
pub fn of(path: &str) -> Option<Effects> {
    let mut path = path;
    loop {
        if let Some((_, effects)) = ROWS.iter().find(|(known, _)| *known == path) {
            return Some(effects());
        }
        path = path.rsplit_once(' ')?.0;
    }
}

/// The words of a command, and its effects.
type Row = (&'static str, fn() -> Effects);

const ROWS: &[Row] = &[
    ("run", anything),
    ("tool", lists_tools),
    ("provider list", lists_tools),
    ("provider info", lists_tools),
    ("provider validate", reads),
    ("provider schema", prints),
    ("provider scan", || {
        let mut effects = writes(lists_tools());
        effects.network = Some(false);
        effects.modifies = vec!["registry".to_owned()];
        effects
    }),
    ("runfile", reads),
    ("provider add-mcp", || creates("manifest")),
    ("provider add-cli", || creates("manifest")),
    ("provider import-openapi", || {
        over_network(creates("manifest"))
    }),
    ("provider inspect-openapi", || over_network(reads())),
    ("provider load", || over_network(creates("cached provider"))),
    ("provider unload", || deletes("cached provider")),
    ("provider remove", || destroys("manifest")),
    ("provider install-skills", || {
        programs(over_network(creates("skill")))
    }),
    ("auth", || over_network(reads())),
    ("sign", prints),
    ("explain", || over_network(reads())),
    ("audit", || over_network(reads())),
    ("audit verify", reads),
    ("proxy", || programs(over_network(writes(reads())))),
    ("status", reads),
    ("reload", || Effects {
        modifies: vec!["running proxy".to_owned()],
        ..reads()
    }),
    // Programs that describe themselves (ATIP) are asked.
    ("check", || programs(reads())),
    ("doctor", || programs(over_network(reads()))),
    ("demo", || over_network(writes(reads()))),
    ("init", || creates("ATI folder")),
    ("key list", reads),
    ("key set", || from_stdin(modifies("credential"))),
    ("key remove", || destroys("credential")),
    ("credential list", || over_network(reads())),
    ("credential set", || {
        over_network(from_stdin(modifies("credential")))
    }),
    ("credential remove", || over_network(destroys("credential"))),
    ("admin rewrap", || over_network(modifies("credential"))),
    ("admin keys issue", || {
        once(over_network(creates("virtual key")))
    }),
    ("admin keys list", || over_network(reads())),
    ("admin keys show", || over_network(reads())),
    ("admin keys revoke", || {
        over_network(destroys("virtual key"))
    }),
    ("edge", || from_stdin(once(modifies("keyring")))),
    ("edge keyring list", reads),
    ("edge keyring diff", reads),
    ("edge keyring fingerprint", reads),
    ("edge keyring remove", || destroys("credential")),
    ("edge bootstrap-keyring", || {
        programs(over_network(from_stdin(once(creates("keyring")))))
    }),
    ("edge rotate-keyring", || {
        programs(over_network(from_stdin(once(modifies("keyring")))))
    }),
    ("edge verify", reads),
    ("token", prints),
    ("token keygen", || once(prints())),
    ("token issue", || once(reads())),
    ("token rotate-file", || once(modifies("token file"))),
    ("token validate", || over_network(reads())),
    ("sandbox provision", || once(reads())),
    ("sandbox env", || from_stdin(reads())),
    ("prompt", prints),
    ("version", prints),
    ("completions", prints),
    ("man", || writes(prints())),
    ("mcp", anything),
    ("skill", || over_network(reads())),
    ("skill list", || programs(over_network(reads()))),
    ("skill resolve", || programs(over_network(reads()))),
    ("skill install", || programs(over_network(creates("skill")))),
    ("skill update", || programs(over_network(modifies("skill")))),
    ("skill verify", || programs(over_network(reads()))),
    ("skill diff", || programs(over_network(reads()))),
    ("skill init", || creates("skill")),
    ("skill remove", || destroys("skill")),
    ("skill fetch build-index", || writes(reads())),
    ("skillati", || over_network(reads())),
    ("skillati build-index", || writes(reads())),
    ("assist", || asks_a_model(lists_tools())),
    ("plan", anything),
];

/// Prints something, and touches nothing.
fn prints() -> Effects {
    Effects {
        filesystem: Some(Filesystem {
            read: Some(false),
            write: Some(false),
            delete: Some(false),
            paths: Vec::new(),
        }),
        network: Some(false),
        subprocess: Some(false),
        idempotent: Some(true),
        reversible: Some(true),
        destructive: Some(false),
        cost: Some(Cost {
            estimate: Some(Estimate::Free),
            billable: Some(false),
        }),
        interactive: Some(Interactive {
            stdin: Some(Input::None),
            prompts: Some(false),
            tty: Some(false),
        }),
        ..Effects::default()
    }
}

fn reads() -> Effects {
    let mut effects = prints();
    files(&mut effects).read = Some(true);
    effects
}

fn files(effects: &mut Effects) -> &mut Filesystem {
    effects.filesystem.get_or_insert_default()
}

fn writes(mut effects: Effects) -> Effects {
    files(&mut effects).write = Some(true);
    effects
}

fn over_network(effects: Effects) -> Effects {
    Effects {
        network: Some(true),
        ..effects
    }
}

fn programs(effects: Effects) -> Effects {
    Effects {
        subprocess: Some(true),
        ..effects
    }
}

/// MCP servers may be started and asked for their tools, which are cached.
fn lists_tools() -> Effects {
    programs(over_network(writes(reads())))
}

fn once(effects: Effects) -> Effects {
    Effects {
        idempotent: Some(false),
        ..effects
    }
}

fn creates(what: &str) -> Effects {
    Effects {
        creates: vec![what.to_owned()],
        ..writes(reads())
    }
}

/// A language model that others are paid for.
fn asks_a_model(effects: Effects) -> Effects {
    Effects {
        cost: Some(Cost {
            estimate: Some(Estimate::Low),
            billable: Some(true),
        }),
        ..effects
    }
}

/// The old value is gone.
fn modifies(what: &str) -> Effects {
    Effects {
        modifies: vec![what.to_owned()],
        reversible: Some(false),
        ..writes(reads())
    }
}

/// What can be made again.
fn deletes(what: &str) -> Effects {
    let mut effects = writes(reads());
    files(&mut effects).delete = Some(true);
    effects.deletes = vec![what.to_owned()];
    effects
}

fn destroys(what: &str) -> Effects {
    Effects {
        destructive: Some(true),
        reversible: Some(false),
        ..deletes(what)
    }
}

fn from_stdin(effects: Effects) -> Effects {
    Effects {
        interactive: Some(Interactive {
            stdin: Some(Input::Optional),
            prompts: Some(true),
            tty: Some(false),
        }),
        ..effects
    }
}

/// Whatever the called tool does: the tool's own effects are in `ati tool info`.
fn anything() -> Effects {
    Effects {
        filesystem: Some(Filesystem {
            read: Some(true),
            write: Some(true),
            delete: Some(true),
            paths: Vec::new(),
        }),
        network: Some(true),
        subprocess: Some(true),
        idempotent: Some(false),
        reversible: Some(false),
        destructive: Some(true),
        cost: Some(Cost {
            estimate: None,
            billable: Some(true),
        }),
        interactive: Some(Interactive {
            stdin: Some(Input::Optional),
            prompts: Some(false),
            tty: Some(false),
        }),
        ..Effects::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_may_start_programs_say_so() {
        for path in [
            "check",
            "proxy",
            "skill list",
            "skill resolve",
            "provider install-skills",
            "edge bootstrap-keyring",
            "edge rotate-keyring",
        ] {
            assert_eq!(of(path).unwrap().subprocess, Some(true), "{path}");
        }
        assert_eq!(of("version").unwrap().subprocess, Some(false));
    }
}
