//! `run_as`: the user that a program runs as, where it isn't ati's own.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::capabilities;

/// A user, and perhaps a group, as a manifest names them: `user`, `user:group`, `uid:gid`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunAs {
    user: String,
    group: Option<String>,
}

/// Whose rights a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
}

/// A user of this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    pub identity: Identity,
    pub home: PathBuf,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunAsError {
    #[error("expected a user, 'user:group' or 'uid:gid'")]
    Malformed,
    #[error("run_as '{0}': there is no such user in /etc/passwd")]
    NoUser(String),
    #[error("run_as '{0}': there is no such group in /etc/group")]
    NoGroup(String),
    #[error("run_as '{0}': a user without an entry in /etc/passwd needs a group, as in 'uid:gid'")]
    NeedsGroup(String),
    #[error("run_as '{0}': that is root")]
    Root(String),
    #[error(
        "run_as '{0}': ati may not start programs as another user; it is neither root's nor has \
         it CAP_SETUID and CAP_SETGID"
    )]
    NotPermitted(String),
}

impl RunAs {
    pub fn parse(text: &str) -> Result<Self, RunAsError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let is_name = |name: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.$@".contains(c);
            !name.is_empty() && !name.starts_with('-') && name.chars().all(allowed)
        };
        if !is_name(user) || !group.is_none_or(is_name) {
            return Err(RunAsError::Malformed);
        }
        Ok(RunAs {
            user: user.to_owned(),
            group: group.map(str::to_owned),
        })
    }

    /// The user on this machine, if a program can be started as this user.
    pub fn resolve(&self) -> Result<User, RunAsError> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let user = self.look_up(&read("/etc/passwd"), &read("/etc/group"))?;
        let Identity { uid, gid } = user.identity;
        // To the kernel, the last number means that nothing changes.
        if uid == u32::MAX || gid == u32::MAX {
            return Err(RunAsError::NoUser(self.to_string()));
        }
        if uid == 0 || gid == 0 {
            return Err(RunAsError::Root(self.to_string()));
        }
        if !user.identity.is_own() && !capabilities::can_switch_users() {
            return Err(RunAsError::NotPermitted(self.to_string()));
        }
        Ok(user)
    }

    fn look_up(&self, passwd: &str, groups: &str) -> Result<User, RunAsError> {
        let number = self.user.parse::<u32>().ok();
        // name:password:uid:gid:comment:home:shell
        let mut users = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>());
        let entry = users.find(|fields| {
            let uid = fields.get(2).and_then(|uid| uid.parse().ok());
            fields.first() == Some(&self.user.as_str()) || (number.is_some() && uid == number)
        });
        let field = |place: usize| entry.as_ref().and_then(|fields| fields.get(place).copied());
        let numeric = |place: usize| field(place).and_then(|text| text.parse::<u32>().ok());
        let uid = numeric(2).or(number);
        let uid = uid.ok_or_else(|| RunAsError::NoUser(self.to_string()))?;
        let gid = match &self.group {
            Some(group) => {
                find_group(group, groups).ok_or_else(|| RunAsError::NoGroup(self.to_string()))?
            }
            None => numeric(3).ok_or_else(|| RunAsError::NeedsGroup(self.to_string()))?,
        };
        Ok(User {
            identity: Identity { uid, gid },
            home: PathBuf::from(field(5).filter(|home| !home.is_empty()).unwrap_or("/")),
        })
    }
}

fn find_group(group: &str, groups: &str) -> Option<u32> {
    // name:password:gid:members
    let named = groups.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.first() == Some(&group)).then(|| fields.get(2)?.parse().ok())
    });
    named.flatten().or_else(|| group.parse().ok())
}

impl fmt::Display for RunAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)?;
        match &self.group {
            Some(group) => write!(f, ":{group}"),
            None => Ok(()),
        }
    }
}

impl User {
    /// Where a program of this user starts: at home, if there is such a folder.
    pub fn folder(&self) -> &Path {
        if self.home.is_dir() {
            &self.home
        } else {
            Path::new("/")
        }
    }
}

impl Identity {
    fn is_own(self) -> bool {
        self.uid == geteuid().as_raw() && self.gid == getegid().as_raw()
    }
}

/// `uid:gid`, for the supervisor's command line.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for Identity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once(':');
        let numbers = numbers.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        let (uid, gid) = numbers.ok_or("expected uid:gid")?;
        Ok(Identity { uid, gid })
    }
}

/// Gives this process, which must have one thread, the rights of that user and no others: no
/// further groups, no capabilities, and no way to get some by executing a file.
pub fn become_user(identity: Identity) -> io::Result<()> {
    if !identity.is_own() {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        set_thread_groups(&[gid])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    capabilities::drop_all()?;
    set_no_new_privs(true)?;
    if identity.is_own() {
        Ok(())
    } else {
        Err(io::Error::other("the user has not changed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
        mcp:x:990:991::/srv/mcp:/bin/false\n\
        bare:x:992:993:::\n";
    const GROUPS: &str = "root:x:0:\nmcp:x:991:\ntools:x:1200:mcp\n";

    #[test]
    fn run_as_names_a_user_and_perhaps_a_group() {
        let user = |uid, gid, home: &str| {
            Ok(User {
                identity: Identity { uid, gid },
                home: home.into(),
            })
        };
        for (text, expected) in [
            ("mcp", user(990, 991, "/srv/mcp")),
            ("990", user(990, 991, "/srv/mcp")),
            ("mcp:tools", user(990, 1200, "/srv/mcp")),
            ("mcp:77", user(990, 77, "/srv/mcp")),
            ("bare", user(992, 993, "/")),
            ("12345:12346", user(12345, 12346, "/")),
            ("12345", Err(RunAsError::NeedsGroup("12345".into()))),
            ("absent", Err(RunAsError::NoUser("absent".into()))),
            ("mcp:absent", Err(RunAsError::NoGroup("mcp:absent".into()))),
        ] {
            let run_as = RunAs::parse(text).unwrap();
            assert_eq!(run_as.to_string(), text);
            assert_eq!(run_as.look_up(PASSWD, GROUPS), expected, "{text}");
        }
        for text in ["", ":", "mcp:", ":tools", "a b", "a:b:c", "-x", "a\n"] {
            assert_eq!(RunAs::parse(text), Err(RunAsError::Malformed), "{text}");
        }
        for text in ["0", "root", "0:12", "12:0"] {
            let refused = RunAs::parse(text).unwrap().resolve();
            assert_eq!(refused, Err(RunAsError::Root(text.to_owned())));
        }
    }

    #[test]
    fn identity_is_read_as_it_is_written() {
        let identity = Identity { uid: 5, gid: 6 };
        assert_eq!(identity.to_string().parse(), Ok(identity));
        assert!("5".parse::<Identity>().is_err() && "a:b".parse::<Identity>().is_err());
    }
}
