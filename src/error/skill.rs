//! Why `/skills` didn't answer.

use std::borrow::Cow;

use http::StatusCode;

use super::RefusalBody;

/// What a caller of `/skills` gets instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillRefusal {
    /// A skill that doesn't exist, or that this caller may not see.
    NotFound(String),
    /// More names in one request than it may have.
    BatchTooLarge { names: usize, most: usize },
    /// Its files can't be given out. The text names no path outside of its folder.
    Unreadable { name: String, why: String },
    /// A parameter of the query that can't be read.
    BadQuery(String),
    /// A body that is no JSON.
    BadJson(String),
    /// A body that is JSON of another shape.
    WrongShape(String),
}

impl SkillRefusal {
    pub fn status(&self) -> StatusCode {
        match self {
            SkillRefusal::NotFound(_) => StatusCode::NOT_FOUND,
            SkillRefusal::BatchTooLarge { .. }
            | SkillRefusal::BadQuery(_)
            | SkillRefusal::BadJson(_) => StatusCode::BAD_REQUEST,
            SkillRefusal::WrongShape(_) => StatusCode::UNPROCESSABLE_ENTITY,
            SkillRefusal::Unreadable { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn body(&self) -> RefusalBody {
        let text: Cow<'static, str> = match self {
            SkillRefusal::NotFound(name) => format!("Skill '{name}' not found").into(),
            SkillRefusal::BatchTooLarge { names, most } => {
                format!("batch size {names} exceeds limit of {most}").into()
            }
            SkillRefusal::Unreadable { name, why } => {
                format!("Skill '{name}' can't be read: {why}").into()
            }
            SkillRefusal::BadQuery(why) => {
                let text = format!("Failed to deserialize query string: {why}");
                return RefusalBody::Text(text.into());
            }
            SkillRefusal::BadJson(why) => {
                let text = format!("Failed to parse the request body as JSON: {why}");
                return RefusalBody::Text(text.into());
            }
            SkillRefusal::WrongShape(why) => {
                let text =
                    format!("Failed to deserialize the JSON body into the target type: {why}");
                return RefusalBody::Text(text.into());
            }
        };
        RefusalBody::Json(text)
    }

    pub fn label(&self) -> &'static str {
        match self {
            SkillRefusal::NotFound(_) => "no_such_skill",
            SkillRefusal::BatchTooLarge { .. } => "batch_too_large",
            SkillRefusal::Unreadable { .. } => "skill_unreadable",
            SkillRefusal::BadQuery(_) => "bad_query",
            SkillRefusal::BadJson(_) => "bad_json",
            SkillRefusal::WrongShape(_) => "wrong_shape",
        }
    }
}
