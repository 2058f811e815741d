use http::header::CONTENT_TYPE;

/// What the body of an answer is.
pub enum ContentType {
    Json,
    Events,
    Other,
}

pub fn content_type(response: &reqwest::Response) -> ContentType {
    let value = response.headers().get(CONTENT_TYPE);
    match value.and_then(|value| value.to_str().ok()) {
        Some(value) if value.starts_with("application/json") => ContentType::Json,
        Some(value) if value.starts_with("text/event-stream") => ContentType::Events,
        _ => ContentType::Other,
    }
}
