//! `[tools.response] format`: how `ati run --output text` prints a tool's result.

/// The header of a `/call` answer that tells the command line the format.
pub const HEADER: &str = "x-ati-result-format";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultFormat {
    #[default]
    Text,
    Json,
    MarkdownTable,
    Raw,
}

impl ResultFormat {
    const ALL: [ResultFormat; 4] = [
        ResultFormat::Text,
        ResultFormat::Json,
        ResultFormat::MarkdownTable,
        ResultFormat::Raw,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ResultFormat::Text => "text",
            ResultFormat::Json => "json",
            ResultFormat::MarkdownTable => "markdown_table",
            ResultFormat::Raw => "raw",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        ResultFormat::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Why a name of a manifest has no effect.
    pub fn fault(name: &str) -> Option<String> {
        let known = ResultFormat::ALL.map(ResultFormat::name).join(", ");
        let unknown = ResultFormat::named(name).is_none();
        unknown.then(|| format!("unknown format '{name}' has no effect; known are {known}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fields::RESULT_FORMATS;

    #[test]
    fn every_documented_format_is_known() {
        assert_eq!(RESULT_FORMATS, ResultFormat::ALL.map(ResultFormat::name));
        for name in RESULT_FORMATS {
            assert_eq!(
                ResultFormat::named(name).map(ResultFormat::name),
                Some(*name)
            );
            assert_eq!(ResultFormat::fault(name), None);
        }
        assert!(ResultFormat::fault("yaml").is_some());
    }
}
