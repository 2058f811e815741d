//! Who may read and write the files of an ATI folder.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The files that hold secrets.
const PRIVATE: [&str; 5] = [
    "credentials",
    "keyring.enc",
    ".keyring-key",
    "config.toml",
    "jwt-private.pem",
];

/// A file or a folder that others than its owner may use.
pub struct Fault {
    pub path: PathBuf,
    pub message: String,
    pub fix: String,
}

/// Whether files with secrets are readable by their owner alone, whether the owner is the folder's,
/// and whether others may put files there.
pub fn faults(dir: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    let Ok(folder) = std::fs::metadata(dir) else {
        return faults;
    };
    for path in PRIVATE.map(|name| dir.join(name)) {
        let Ok(file) = std::fs::metadata(&path) else {
            continue;
        };
        let shown = path.display();
        if folder.uid() != file.uid() {
            faults.push(Fault {
                message: "belongs to another user than its folder: the proxy may not be able to \
                          read it"
                    .to_owned(),
                fix: format!("chown --reference={} {shown}", dir.display()),
                path: path.clone(),
            });
        }
        let mode = file.permissions().mode() & 0o777;
        if mode & 0o077 != 0 && holds_a_secret(&path) {
            faults.push(Fault {
                message: format!("has mode {mode:o}: others can read it"),
                fix: format!("chmod 600 {shown}"),
                path,
            });
        }
    }
    let mode = folder.permissions().mode();
    if mode & 0o002 != 0 {
        faults.push(Fault {
            path: dir.to_path_buf(),
            message: format!("has mode {:o}: every user can write to it", mode & 0o777),
            fix: format!("chmod o-w {}", dir.display()),
        });
    }
    faults
}

/// Only a `config.toml` may be without one.
fn holds_a_secret(path: &Path) -> bool {
    !path.ends_with("config.toml")
        || std::fs::read_to_string(path).is_ok_and(|text| text.contains("secret"))
}
