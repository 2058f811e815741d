/// How far a call is, as its handler reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub done: f64,
    pub total: Option<f64>,
    /// In the tool's own words.
    pub message: Option<String>,
}

/// Is called with each report, from the task that waits for the call: it must return at once.
pub type Watcher<'a> = &'a (dyn Fn(&Progress) + Sync);
