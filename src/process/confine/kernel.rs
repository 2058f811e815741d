//! What this kernel can confine.

use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr, Scope,
};

use super::calls;

/// What this kernel can do for a confined program, and what it can't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// The version of Landlock, if it is there.
    pub landlock: Option<i32>,
    /// Why seccomp can't be used.
    pub seccomp: Result<(), String>,
}

/// The first version that guards truncation: before it, a program can empty files that it may not
/// write.
pub(super) const LEAST: ABI = ABI::V3;
/// The newest that ati uses, where the kernel has it.
pub(super) const NEWEST: ABI = ABI::V9;

impl Abilities {
    /// What is missing for `[provider.cli_sandbox]`, in words for the operator.
    pub fn lack(&self) -> Option<String> {
        match self.landlock {
            None => Some(
                "this kernel has no Landlock, or it is not switched on (CONFIG_SECURITY_LANDLOCK, \
                 'landlock' in the boot option lsm=), or a system call filter forbids it; \
                 cli_sandbox needs Linux 6.2 or newer"
                    .to_owned(),
            ),
            Some(version) if version < LEAST as i32 => Some(format!(
                "this kernel's Landlock has version {version}, which does not keep a program from \
                 emptying files; cli_sandbox needs version {}, of Linux 6.2 or newer",
                LEAST as i32
            )),
            Some(_) => {
                let why = self.seccomp.as_ref().err()?;
                Some(format!(
                    "this kernel or a system call filter forbids seccomp filters: {why}"
                ))
            }
        }
    }

    /// For `ati doctor`, where nothing is missing.
    pub fn words(&self) -> String {
        let version = self.landlock.unwrap_or_default();
        let mut words = format!("Landlock {version} and seccomp: paths, sockets, limits");
        for (since, what, linux) in [
            (ABI::V5, "devices", "6.10"),
            (ABI::V6, "signals and abstract sockets", "6.12"),
            (ABI::V9, "sockets by path", "7.1"),
        ] {
            if version >= since as i32 {
                words += &format!(", {what}");
            } else {
                words += &format!("; not {what} (Linux {linux})");
            }
        }
        words
    }
}

/// Found out once, by trying.
pub fn abilities() -> &'static Abilities {
    static FOUND: OnceLock<Abilities> = OnceLock::new();
    FOUND.get_or_init(|| {
        // What is tried stays with the thread, which ends.
        let tried = std::thread::Builder::new().spawn(|| Abilities {
            landlock: try_landlock(),
            seccomp: try_seccomp(),
        });
        let tried = tried.ok().and_then(|thread| thread.join().ok());
        tried.unwrap_or(Abilities {
            landlock: None,
            seccomp: Err("there is no thread to try it".to_owned()),
        })
    })
}

fn try_landlock() -> Option<i32> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.restrict_self());
    match ruleset.ok()?.landlock {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } => Some(kernel_abi.unwrap_or(effective_abi as i32)),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
    }
}

fn try_seccomp() -> Result<(), String> {
    for filter in calls::filters(false)? {
        seccompiler::apply_filter(&filter).map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_that_lacks_something_is_told_what() {
        let abilities = |landlock, seccomp: Result<(), &str>| Abilities {
            landlock,
            seccomp: seccomp.map_err(str::to_owned),
        };
        assert_eq!(abilities(Some(3), Ok(())).lack(), None);
        let lack = |it: Abilities| it.lack().unwrap();
        assert!(lack(abilities(None, Ok(()))).contains("has no Landlock"));
        assert!(lack(abilities(Some(2), Ok(()))).contains("has version 2"));
        assert!(lack(abilities(Some(7), Err("EPERM"))).contains("seccomp filters: EPERM"));
        let old = abilities(Some(4), Ok(())).words();
        assert!(old.contains("not devices (Linux 6.10)"), "{old}");
        let new = abilities(Some(7), Ok(())).words();
        assert!(
            new.contains(", signals and abstract sockets; not sockets by path"),
            "{new}"
        );
    }

    #[test]
    fn trying_does_not_confine_this_process() {
        let found = abilities();
        eprintln!("this kernel: {found:?}");
        assert_eq!(found, abilities());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "x").unwrap();
        std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    }
}
