use std::sync::Arc;

use parking_lot::Mutex;

use super::{Attachment, RedactionPatterns};

/// The secrets that a call was made with. Its answer is searched for them again where it changes
/// its form: a form that no search would find can become one that every reader knows.
#[derive(Default)]
pub struct UsedSecrets(Mutex<Vec<Arc<RedactionPatterns>>>);

impl UsedSecrets {
    pub fn add(&self, attachment: &Attachment) {
        self.0.lock().push(attachment.patterns());
    }

    /// For work on another thread.
    pub fn patterns(&self) -> Vec<Arc<RedactionPatterns>> {
        self.0.lock().clone()
    }
}
