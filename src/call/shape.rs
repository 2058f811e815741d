use std::io;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use serde_json_path::JsonPath;

use super::Output;
use super::work::{SMALL_TEXT, Work};
use crate::catalog::Tool;
use crate::credential::{RedactionPatterns, UsedSecrets};
use crate::error::CallError;
use crate::exec::Answer;
use crate::json;
use crate::request_id::RequestId;

/// `extract` is refused for an answer with more values than this.
const MOST_VALUES: usize = 2_000_000;
/// Steps of a search through an answer. A search can't be interrupted.
const MOST_STEPS: u64 = 10_000_000;

/// Applies `extract`: no match gives null, one match itself, several a list.
pub async fn shape(
    tool: &Arc<Tool>,
    answer: Answer,
    work: &Work<'_>,
    most_bytes: usize,
    request_id: RequestId,
    secrets: &UsedSecrets,
) -> Result<Output, CallError> {
    let Some(path) = &tool.extract else {
        return Ok(match answer {
            Answer::Memory(raw) => Output::Raw(raw),
            Answer::Spooled(json) => Output::Spooled(json),
            Answer::WithFiles(json) => Output::WithFiles(json),
        });
    };
    let secrets = secrets.patterns();
    if let (Answer::Memory(raw), true) = (&answer, answer.size() <= SMALL_TEXT as u64)
        && is_cheap(path)
    {
        return extract(path, raw, most_bytes, &secrets);
    }
    let tool = tool.clone();
    let look = move || {
        let raw = answer.into_raw_blocking().map_err(|error| {
            tracing::error!(%request_id, %error, "a spooled answer can't be read");
            CallError::Internal("the answer can't be read again")
        })?;
        match &tool.extract {
            Some(path) => extract(path, &raw, most_bytes, &secrets),
            None => Ok(Output::Raw(raw)),
        }
    };
    work.run(look).await?
}

/// Whether it finds no more than the answer has: of a small answer, `$..*` makes megabytes.
fn is_cheap(path: &Result<JsonPath, String>) -> bool {
    path.as_ref().map_or(true, |path| {
        let text = path.to_string();
        !text.contains("..") && !text.contains('?') && !text.contains(',')
    })
}

fn extract(
    path: &Result<JsonPath, String>,
    answer: &RawValue,
    most_bytes: usize,
    secrets: &[Arc<RedactionPatterns>],
) -> Result<Output, CallError> {
    let path = match path {
        Ok(path) => path,
        Err(e) => return Err(failed(e.clone(), answer)),
    };
    let value: Value =
        json::parse(answer.get(), MOST_VALUES).map_err(|e| failed(e.to_string(), answer))?;
    if steps(&path.to_string(), &value) > MOST_STEPS {
        let why = "the path would search the answer too often".to_owned();
        return Err(failed(why, answer));
    }
    let found = path.query(&value).all();
    let mut text = Bounded {
        bytes: Vec::new(),
        most: most_bytes,
    };
    let written = match found.as_slice() {
        [] => serde_json::to_writer(&mut text, &Value::Null),
        [only] => serde_json::to_writer(&mut text, only),
        several => serde_json::to_writer(&mut text, several),
    };
    written.map_err(|e| failed(e.to_string(), answer))?;
    let mut bytes = text.bytes;
    // Once more: strings and numbers were decoded, and are written in the one way that ati has. A
    // secret that is JSON itself is found now if the answer had other white space in it.
    for patterns in secrets {
        patterns.redact(&mut bytes);
    }
    Ok(Output::Raw(Answer::from_bytes(&bytes)))
}

/// About how many values a search looks at. `..` goes through all values below each that it begins
/// at, and a filter with `$` through the whole answer for each value.
fn steps(path: &str, value: &Value) -> u64 {
    let mut size = Size::default();
    size.add(value, 1);
    let descents = path.matches("..").count();
    let whole_searches = path.matches('$').count().saturating_sub(1);
    let once = if descents < 2 {
        size.values
    } else {
        size.depths
    };
    let deeper = size
        .deepest
        .saturating_pow(descents.saturating_sub(2) as u32);
    let wider = size.values.saturating_pow(whole_searches as u32);
    once.saturating_mul(deeper).saturating_mul(wider)
}

#[derive(Default)]
struct Size {
    values: u64,
    /// The depths of all values, added up.
    depths: u64,
    deepest: u64,
}

impl Size {
    fn add(&mut self, value: &Value, depth: u64) {
        self.values += 1;
        self.depths += depth;
        self.deepest = self.deepest.max(depth);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1)),
            Value::Object(map) => map.values().for_each(|value| self.add(value, depth + 1)),
            _ => {}
        }
    }
}

/// `$..*` finds a value once for each value above it: a result can be far larger than the answer.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > self.most {
            let most = self.most;
            return Err(io::Error::other(format!("the result exceeds {most} bytes")));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(message: String, answer: &RawValue) -> CallError {
    CallError::Extraction {
        message,
        raw: answer.get().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::credential::Attachment;
    use crate::runtime::ComputePool;
    use serde_json::json;
    use std::time::Duration;

    fn extract_by(path: &str, answer: Value) -> Result<Value, CallError> {
        let raw = serde_json::value::to_raw_value(&answer).unwrap();
        extract_from(path, raw, &UsedSecrets::default())
    }

    fn extract_from(
        path: &str,
        raw: Box<RawValue>,
        secrets: &UsedSecrets,
    ) -> Result<Value, CallError> {
        let catalog = Catalog::from_text(&format!(
            "[provider]\nname = 'p'\nbase_url = 'http://h'\n[[tools]]\nname = 't'\nresponse = {{ extract = '{path}' }}"
        ));
        let tool = &catalog.tools()[0];
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        let pool = ComputePool::new(1);
        let work = Work::new(&pool, "a", Duration::from_secs(60));
        let id = RequestId::generate();
        let answer = Answer::Memory(raw);
        let shaped = runtime.block_on(shape(tool, answer, &work, 1 << 20, id, secrets));
        shaped.map(|output| match output {
            Output::Raw(raw) => serde_json::from_str(raw.get()).unwrap(),
            _ => panic!("it was in memory"),
        })
    }

    #[test]
    fn extract_gives_null_one_value_or_a_list() {
        let answer = json!({"results": [{"id": 1}, {"id": 2}], "one": {"x": 5}});
        assert_eq!(
            extract_by("$.results[*].id", answer.clone()).unwrap(),
            json!([1, 2])
        );
        assert_eq!(extract_by("$.one.x", answer.clone()).unwrap(), json!(5));
        assert_eq!(
            extract_by("$.nothing", answer.clone()).unwrap(),
            Value::Null
        );
        let failed = extract_by("$[", answer.clone()).unwrap_err();
        assert!(
            failed
                .to_string()
                .starts_with("Response processing error: JSONPath extraction failed: ")
        );
        assert_eq!(failed.raw(), Some(answer.to_string().as_str()));
    }

    /// What the first search can't find, because the answer writes it in another way than ati does.
    #[test]
    fn secret_that_only_extract_brings_to_light_is_redacted() {
        for (secret, answer) in [
            // A key that is a JSON document, as those of cloud services are.
            (
                r#"{"type":"service_account","key":"planted"}"#,
                r#"{"v": { "type": "service_account", "key": "planted" }}"#,
            ),
            (
                r#"["planted","secret"]"#,
                r#"{"v": [ "planted", "secret" ]}"#,
            ),
            // A key of digits, which the answer has as a number with an exponent.
            ("123456789012345", r#"{"v": 1.23456789012345e14}"#),
        ] {
            let secrets = UsedSecrets::default();
            let attachment = Attachment::default().with_redacted([secret.as_bytes()].into_iter());
            secrets.add(&attachment);
            let mut first = answer.as_bytes().to_vec();
            attachment.redact(&mut first);
            assert_eq!(first, answer.as_bytes(), "the first search finds {secret}");
            for path in ["$.v", "$..v"] {
                let raw = RawValue::from_string(answer.to_owned()).unwrap();
                let shown = extract_from(path, raw, &secrets).unwrap().to_string();
                assert!(shown.contains("[REDACTED]"), "{path} {secret}: {shown}");
            }
        }
    }

    #[test]
    fn extract_that_would_take_too_long_or_too_much_is_refused() {
        let mut nested = json!(1);
        for _ in 0..100 {
            nested = json!({"a": nested});
        }
        let list = |count: usize| json!(vec![nested.clone(); count]);
        // On a thread of the pool, because the answer is big.
        assert_eq!(
            extract_by("$..b", list(200)).unwrap(),
            Value::Null,
            "one search"
        );
        let why = |path: &str, answer: Value| {
            let refused = extract_by(path, answer).unwrap_err();
            assert!(refused.raw().is_some());
            refused.to_string()
        };
        for path in ["$..a..a..b", "$[?$..z]..b"] {
            let why = why(path, list(200));
            assert!(why.ends_with("too often"), "{path}: {why}");
        }
        // The answer has 60 KB, and the result would have megabytes.
        let why = why("$..*", list(100));
        assert!(why.ends_with("exceeds 1048576 bytes"), "{why}");
    }
}
