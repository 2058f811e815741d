//! Cursors of paged lists: the name of the last item, encoded so that clients take it for what it
//! is, a text of the server's. A list that changes between two pages loses and repeats nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::RpcError;

/// Keeps a text that is no cursor from being taken for one.
const MARK: &str = "after ";

pub fn after(name: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{MARK}{name}"))
}

/// The name that the page begins behind.
pub fn read(cursor: &str) -> Result<String, RpcError> {
    let decoded = URL_SAFE_NO_PAD.decode(cursor).ok();
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let name = text.as_deref().and_then(|text| text.strip_prefix(MARK));
    name.map(str::to_owned)
        .ok_or_else(|| RpcError::Params("Invalid cursor".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_gives_its_name_back_and_other_texts_give_none() {
        for name in ["p:tool", "", "ä é"] {
            assert_eq!(read(&after(name)).unwrap(), name);
        }
        for wrong in ["", "x", "p:tool", "====", &URL_SAFE_NO_PAD.encode("tool")] {
            assert_eq!(read(wrong).unwrap_err().code(), -32602, "{wrong}");
        }
    }
}
