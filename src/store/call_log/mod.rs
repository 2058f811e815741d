//! The call log: a row for each tool call and each request to a route, written behind the requests.
//!
//! | File | What is in it |
//! |---|---|
//! | `record` | what a row says, and what is replaced so that every row can be written |
//! | `queue` | rows that wait, within bounds, and the task that writes them |
//! | `insert` | many rows in one statement |
//! | `retention` | the end of old rows |
//! | `find` | rows as entries of the audit |

mod find;
mod insert;
mod queue;
mod record;
mod retention;

pub use find::{Follower, tail};
pub use queue::{CallLog, MOST_BYTES, MOST_ROWS};
pub use record::CallRecord;
pub use retention::Retention;

/// The handler of rows of routes.
pub const ROUTE: &str = "passthrough";
