use serde_json::Value;
use serde_json::value::RawValue;

use super::Output;
use crate::catalog::Tool;
use crate::error::CallError;
use crate::json;

/// Larger answers pass as they are, or not at all.
const MOST_VALUES: usize = 2_000_000;

/// `extract`: nothing found is null, one thing is itself, several are a list.
pub fn shape(tool: &Tool, answer: Box<RawValue>) -> Result<Output, CallError> {
    let path = match &tool.extract {
        None => return Ok(Output::Raw(answer)),
        Some(Ok(path)) => path,
        Some(Err(e)) => return Err(failed(e.clone(), &answer)),
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
        shape(&catalog.tools()[0], raw).map(|output| match output {
            Output::Json(value) => value,
            Output::Raw(raw) => serde_json::from_str(raw.get()).unwrap(),
        })
    }

    #[test]
    fn none_one_and_many() {
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
