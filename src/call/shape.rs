use serde_json::Value;
use serde_json::value::RawValue;

use super::Output;
use crate::catalog::Tool;
use crate::error::CallError;
use crate::exec::Answer;
use crate::json;
use crate::request_id::RequestId;

/// `extract` is refused for an answer with more values than this.
const MOST_VALUES: usize = 2_000_000;

/// Applies `extract`: no match gives null, one match itself, several a list.
pub async fn shape(
    tool: &Tool,
    answer: Answer,
    request_id: RequestId,
) -> Result<Output, CallError> {
    let Some(path) = &tool.extract else {
        return Ok(match answer {
            Answer::Memory(raw) => Output::Raw(raw),
            Answer::Spooled(json) => Output::Spooled(json),
        });
    };
    let answer = answer.into_raw().await.map_err(|error| {
        tracing::error!(%request_id, %error, "a spooled answer can't be read");
        CallError::Internal("the answer can't be read again")
    })?;
    let path = match path {
        Ok(path) => path,
        Err(e) => return Err(failed(e.clone(), &answer)),
    };
    let value: Value =
        json::parse(answer.get(), MOST_VALUES).map_err(|e| failed(e.to_string(), &answer))?;
    let mut found: Vec<Value> = path.query(&value).all().into_iter().cloned().collect();
    Ok(Output::Json(match found.len() {
        0 => Value::Null,
        1 => found.remove(0),
        _ => Value::Array(found),
    }))
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
    use serde_json::json;

    fn extract(path: &str, answer: Value) -> Result<Value, CallError> {
        let catalog = Catalog::from_text(&format!(
            "[provider]\nname = 'p'\nbase_url = 'http://h'\n[[tools]]\nname = 't'\nresponse = {{ extract = '{path}' }}"
        ));
        let raw = serde_json::value::to_raw_value(&answer).unwrap();
        let shaped = futures::executor::block_on(shape(
            &catalog.tools()[0],
            Answer::Memory(raw),
            RequestId::generate(),
        ));
        shaped.map(|output| match output {
            Output::Json(value) => value,
            Output::Raw(raw) => serde_json::from_str(raw.get()).unwrap(),
            Output::Spooled(_) => panic!("it was in memory"),
        })
    }

    #[test]
    fn extract_gives_null_one_value_or_a_list() {
        let answer = json!({"results": [{"id": 1}, {"id": 2}], "one": {"x": 5}});
        assert_eq!(
            extract("$.results[*].id", answer.clone()).unwrap(),
            json!([1, 2])
        );
        assert_eq!(extract("$.one.x", answer.clone()).unwrap(), json!(5));
        assert_eq!(extract("$.nothing", answer.clone()).unwrap(), Value::Null);
        let failed = extract("$[", answer.clone()).unwrap_err();
        assert!(
            failed
                .to_string()
                .starts_with("Response processing error: JSONPath extraction failed: ")
        );
        assert_eq!(failed.raw(), Some(answer.to_string().as_str()));
    }
}
