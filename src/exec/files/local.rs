//! A folder on ati's own machine: `<directory>/<YYYY-MM-DD>/<uuid>-<filename>`. The file has its
//! name only once it is whole.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::spawn_blocking;
use url::Url;

use super::error::{FilesError, UploadFault, disk};
use super::object;
use super::upload::Upload;
use crate::files;

/// Other programs of the machine are to read it; the folder's own mode says which.
const MODE: u32 = 0o644;

pub async fn upload(file: &Upload, directory: &Path) -> Result<String, FilesError> {
    let path = directory
        .join(object::day())
        .join(object::unique(&file.filename));
    let stop = StopOnDrop::default();
    let (target, mut content) = (
        path.clone(),
        Stoppable {
            content: file.content.body.blocking_reader(),
            stop: stop.0.clone(),
        },
    );
    let written = spawn_blocking(move || files::write_new_from(&target, &mut content, MODE)).await;
    written
        .unwrap_or_else(|e| Err(io::Error::other(e)))
        .map_err(|error| match disk(&error) {
            FilesError::Disk(why) => {
                UploadFault::Disk(format!("the file can't be written: {why}")).into()
            }
            full => full,
        })?;
    let url = Url::from_file_path(&path);
    Ok(url.map_or_else(|()| path.display().to_string(), String::from))
}

/// A call that is dropped ends its write, which would go on otherwise.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Stoppable<R> {
    content: R,
    stop: Arc<AtomicBool>,
}

impl<R: Read> Read for Stoppable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("the call was abandoned"));
        }
        self.content.read(buffer)
    }
}
