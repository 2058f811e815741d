//! Programs that a scan never runs: those that do harm, wait or fill the screen whatever they are
//! told, and those that can't be ATIP tools. A file and `--skip` add to the list.

use std::path::Path;

use crate::pattern;

/// Names; `*` stands for any text.
const SHIPPED: &[&str] = &[
    // Ends or changes the machine.
    "shutdown",
    "reboot",
    "halt",
    "poweroff",
    "init",
    "telinit",
    "kexec*",
    "systemctl",
    "service",
    "mkfs*",
    "mke2fs",
    "mkswap",
    "fdisk",
    "sfdisk",
    "cfdisk",
    "parted",
    "gdisk",
    "sgdisk",
    "wipefs",
    "dd",
    "shred",
    "swapon",
    "swapoff",
    "mount*",
    "umount*",
    "losetup",
    "blkdiscard",
    "hwclock",
    "date",
    "insmod",
    "rmmod",
    "modprobe",
    "iptables*",
    "ip6tables*",
    "nft",
    "ufw",
    "crontab",
    "at",
    "batch",
    "visudo",
    "vipw",
    "vigr",
    "chpasswd",
    "newusers",
    "grpconv",
    "grpunconv",
    "pwconv",
    "pwunconv",
    // Runs or ends other programs.
    "kill",
    "killall*",
    "pkill",
    "skill",
    "snice",
    "xkill",
    "xargs",
    "parallel",
    "env",
    "nohup",
    "setsid",
    "chroot",
    "unshare",
    "nsenter",
    "sudo*",
    "su",
    "doas",
    "pkexec",
    "runuser",
    "ssh",
    "ssh-agent",
    "sshd",
    "telnet*",
    "gpg-agent",
    "screen",
    "tmux",
    "byobu*",
    // Takes words for files to write or to remove.
    "rm",
    "rmdir",
    "mv",
    "cp",
    "ln",
    "install",
    "truncate",
    "tee",
    "touch",
    "mkdir",
    "mkfifo",
    "mknod",
    "unlink",
    "split",
    "csplit",
    "sponge",
    // Shells, interpreters and editors, which take the word for a script or a file.
    "sh",
    "bash",
    "rbash",
    "dash",
    "zsh",
    "fish",
    "ksh*",
    "csh",
    "tcsh",
    "busybox",
    "vi",
    "vim*",
    "view",
    "ex",
    "nano",
    "emacs*",
    "ed",
    "pico",
    "less",
    "more",
    "most",
    // Daemons, graphical programs, and what never ends.
    "*d-daemon",
    "dbus-*",
    "Xorg",
    "X",
    "startx",
    "xinit",
    "getty",
    "agetty",
    "login",
    "yes",
    "watch",
    "top",
    "htop",
    "cat",
    "sleep",
    // ati itself.
    "ati",
];

/// A file in `agent-tools` of the configuration folder: one name in a line, `#` begins a comment.
pub const FILE: &str = "skip-list";

pub struct SkipList(Vec<String>);

impl SkipList {
    pub fn new(added: &[String], file: Option<&Path>) -> Self {
        let shipped = SHIPPED.iter().map(|name| (*name).to_owned());
        let text = file.and_then(|file| crate::files::read_text(file).ok());
        let text = text.unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim());
        let lines = lines.filter(|line| !line.is_empty()).map(str::to_owned);
        SkipList(shipped.chain(lines).chain(added.iter().cloned()).collect())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| pattern::matches(known, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_that_ships_can_be_extended() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        std::fs::write(&file, "# ours\nslow-*   # hangs\n\n").unwrap();
        let list = SkipList::new(&["mine".to_owned()], Some(&file));
        for name in ["rm", "mkfs.ext4", "slow-tool", "mine", "shutdown"] {
            assert!(list.has(name), "{name}");
        }
        for name in ["gh", "kubectl", "ours", "mines"] {
            assert!(!list.has(name), "{name}");
        }
    }
}
