//! File tools: `download` fetches a file into a spool, `upload` streams one to a destination. No
//! file is in memory as a whole.

mod arguments;
mod content;
pub mod content_type;
mod download;
mod error;
mod hops;
mod resume;
mod upload;

mod fal;
mod gcs;
mod local;
mod object;
mod s3;

pub use arguments::{DownloadArgs, UploadArgs, base_name, for_audit, shown_url};
pub use content::{Content, Incoming, StoredFile, from_base64};
pub use download::{Downloaded, download};
pub use error::{DownloadFault, FilesError, UploadFault};
pub use hops::check as check_download;
pub use upload::{Target, Upload, upload};
