//! Where a scan is in the text, for as long as that may lead to a member that is wanted.

use super::ScanError;

/// What becomes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Diverted,
    Reported,
}

#[derive(Debug)]
pub struct Pattern {
    steps: Vec<Step>,
    wanted: Wanted,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Name(String),
    Any,
}

impl Pattern {
    pub fn new(path: &str, wanted: Wanted) -> Self {
        let steps = path.split('.').map(|step| match step {
            "*" => Step::Any,
            name => Step::Name(name.to_owned()),
        });
        Pattern {
            steps: steps.collect(),
            wanted,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    Object,
    List,
}

/// An open container that a pattern leads into.
#[derive(Debug)]
struct Level {
    /// The patterns that lead here.
    live: Vec<usize>,
    /// Those of `live` that the current member matches.
    matching: Vec<usize>,
    /// The current member.
    name: String,
    /// Members of a list so far.
    count: usize,
    /// The patterns whose own name was there already.
    seen: Vec<usize>,
}

#[derive(Debug, Default)]
pub struct Tracker {
    patterns: Vec<Pattern>,
    open: Vec<Container>,
    /// Of the outermost containers, as far in as patterns lead.
    levels: Vec<Level>,
}

impl Tracker {
    pub fn add(&mut self, pattern: Pattern) {
        self.patterns.push(pattern);
    }

    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// The innermost open one.
    pub fn container(&self) -> Option<Container> {
        self.open.last().copied()
    }

    /// Whether a pattern leads into the innermost container.
    pub fn is_tracking(&self) -> bool {
        self.levels.len() == self.open.len()
    }

    /// The name of the member whose value comes next. `None` if it can't be read.
    pub fn name(&mut self, name: Option<String>) -> Result<(), ScanError> {
        let depth = self.open.len().saturating_sub(1);
        let Some(level) = self.levels.get_mut(depth) else {
            return Ok(());
        };
        level.matching.clear();
        let Some(name) = name else {
            return Ok(());
        };
        for pattern in &level.live {
            match self.patterns[*pattern].steps.get(depth) {
                Some(Step::Any) => level.matching.push(*pattern),
                Some(Step::Name(own)) if *own == name => {
                    // Which of the two counts would depend on the reader.
                    if level.seen.contains(pattern) {
                        return Err(ScanError::Duplicate(name));
                    }
                    level.seen.push(*pattern);
                    level.matching.push(*pattern);
                }
                Some(Step::Name(_)) | None => {}
            }
        }
        level.name = name;
        Ok(())
    }

    /// A value begins. In a list, that is the next member.
    pub fn begin_value(&mut self) {
        let depth = self.open.len().saturating_sub(1);
        if !self.is_tracking() || self.container() != Some(Container::List) {
            return;
        }
        if let Some(level) = self.levels.get_mut(depth) {
            level.name = level.count.to_string();
            level.count += 1;
            let is_any =
                |pattern: &&usize| self.patterns[**pattern].steps.get(depth) == Some(&Step::Any);
            level.matching = level.live.iter().filter(is_any).copied().collect();
        }
    }

    /// The value that begins is a container.
    pub fn open(&mut self, container: Container) {
        let depth = self.open.len();
        if self.is_tracking() {
            let leads_on = |pattern: &usize| self.patterns[*pattern].steps.len() > depth;
            let live: Vec<usize> = match self.levels.last() {
                Some(level) => level.matching.iter().copied().filter(leads_on).collect(),
                None => (0..self.patterns.len()).collect(),
            };
            if !live.is_empty() {
                self.levels.push(Level {
                    live,
                    matching: Vec::new(),
                    name: String::new(),
                    count: 0,
                    seen: Vec::new(),
                });
            }
        }
        self.open.push(container);
    }

    pub fn close(&mut self) {
        if self.is_tracking() {
            self.levels.pop();
        }
        self.open.pop();
    }

    /// Whether the value that begins is wanted.
    pub fn wanted(&self) -> Option<Wanted> {
        let level = self.levels.last().filter(|_| self.is_tracking())?;
        let ends_here = |pattern: &&usize| self.patterns[**pattern].steps.len() == self.open.len();
        let pattern = level.matching.iter().find(ends_here)?;
        Some(self.patterns[*pattern].wanted)
    }

    /// Where the current value is.
    pub fn path(&self) -> Vec<String> {
        self.levels.iter().map(|level| level.name.clone()).collect()
    }
}
