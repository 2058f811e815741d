//! How far a call is, for whoever wants to know while it is under way.

#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub done: f64,
    pub total: Option<f64>,
    /// In the words of whoever does the work.
    pub message: Option<String>,
}

/// Who is told. It is called from the caller's own task, and must not take long.
pub type Watcher<'a> = &'a (dyn Fn(&Progress) + Sync);
