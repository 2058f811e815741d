//! The file of `--out`: it has its name only once it is whole.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::cli::file_failure;
use crate::cli::new_file::NewFile;
use crate::error::{Code, Failure};

pub struct OutFile {
    path: PathBuf,
    file: Kind,
}

enum Kind {
    New(NewFile),
    /// A pipe or a device, as /dev/stdout: it can't be replaced.
    Direct(File),
}

impl OutFile {
    /// Before anything is sent: a path that can't be written to fails at once.
    pub fn create(path: &str) -> Result<Self, Failure> {
        let path = PathBuf::from(path);
        let file = create(&path).map_err(|e| file_failure(Code::InvalidValue, &path, e))?;
        Ok(OutFile { path, file })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &mut self.file {
            Kind::New(file) => file.write(bytes),
            Kind::Direct(file) => file.write_all(bytes),
        };
        written.map_err(|e| file_failure(Code::ExecutionFailed, &self.path, e))
    }

    /// The file has its name now.
    pub fn finish(self) -> Result<(), Failure> {
        let Kind::New(file) = self.file else {
            return Ok(());
        };
        let kept = file.commit();
        kept.map_err(|e| file_failure(Code::ExecutionFailed, &self.path, e))
    }
}

fn create(path: &Path) -> io::Result<Kind> {
    // A link stays, and leads to the new file.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match target.metadata() {
        Ok(known) if !known.is_file() && !known.is_dir() => {
            let file = File::options().write(true).open(&target)?;
            Ok(Kind::Direct(file))
        }
        Ok(_) | Err(_) => NewFile::create(&target).map(Kind::New),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn names(dir: &Path) -> Vec<String> {
        let names = dir.read_dir().unwrap();
        names
            .map(|name| name.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn file_has_its_name_only_once_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let text = path.to_str().unwrap();
        let mut file = OutFile::create(text).unwrap();
        file.write(b"half").unwrap();
        // Whatever ends ati now, nothing is left of it.
        assert_eq!(names(dir.path()), Vec::<String>::new());
        drop(file);
        assert_eq!(names(dir.path()), Vec::<String>::new());
        let mut file = OutFile::create(text).unwrap();
        file.write(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(names(dir.path()), ["out"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        // Everyone may read it, as far as the umask says so.
        let mode = path.metadata().unwrap().permissions().mode();
        assert_ne!(mode & 0o777, 0o600);
    }

    #[test]
    fn link_stays_and_folders_and_devices_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut file = OutFile::create(link.to_str().unwrap()).unwrap();
        file.write(b"new").unwrap();
        file.finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
        assert!(OutFile::create(dir.path().to_str().unwrap()).is_err());
        let refused = OutFile::create("/dev/null/folder/file").err().unwrap();
        let refused = refused.one_line();
        assert!(refused.starts_with("/dev/null/folder/file: "), "{refused}");
        let deep = dir.path().join("new/folder/file");
        OutFile::create(deep.to_str().unwrap())
            .unwrap()
            .finish()
            .unwrap();
        assert!(deep.is_file());
        let mut null = OutFile::create("/dev/null").unwrap();
        null.write(b"gone").unwrap();
        null.finish().unwrap();
    }
}
