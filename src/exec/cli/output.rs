//! What a program wrote to its standard output, as the result of a call.

use futures::StreamExt as _;

use super::{CliError, LONGEST_ERROR};
use crate::credential::Attachment;
use crate::error::Shortage;
use crate::exec::{Answer, ExecContext, SpooledJson};
use crate::runtime::ComputeError;
use crate::spool::{Spool, SpoolError, Spooled};

/// A text up to this size is looked through where it is: that takes a millisecond or two.
const SMALL: usize = 1 << 20;

/// JSON where it is JSON, a text otherwise; without white space around it, and without credentials.
pub async fn answer(
    written: Spooled,
    attachment: &Attachment,
    provider: &str,
    context: ExecContext<'_>,
) -> Result<Answer, CliError> {
    if let Some(text) = written.in_memory().filter(|text| text.len() <= SMALL) {
        let mut text = text.to_vec();
        // First: a credential may end in white space.
        attachment.redact(&mut text);
        return Ok(Answer::Memory(Answer::from_bytes(text.trim_ascii())));
    }
    let clean = clean(written, attachment, context).await?;
    let check = move || Answer::Spooled(SpooledJson::check_blocking(clean));
    let time = context.limits.timeout;
    let checked = context.runtime.compute.run(provider, time, check).await;
    checked.map_err(|error| match error {
        ComputeError::Full => CliError::Busy(Shortage::Queue),
        ComputeError::TimedOut => CliError::Busy(Shortage::Time),
        ComputeError::Failed => CliError::Output(error.to_string()),
    })
}

/// The beginning of what it wrote, for an error.
pub async fn beginning(written: &Spooled) -> Result<Vec<u8>, CliError> {
    let head = written.head(2 * LONGEST_ERROR).await.map_err(not_spooled)?;
    Ok(head.trim_ascii().to_vec())
}

/// The first and the last part of a long text: the reason mostly stands at one of its ends.
pub fn shortened(text: &str) -> String {
    if text.len() <= LONGEST_ERROR {
        return text.to_owned();
    }
    let half = LONGEST_ERROR / 2;
    let first = &text[..text.floor_char_boundary(half)];
    let last = &text[text.ceil_char_boundary(text.len() - half)..];
    format!("{first}\n[...]\n{last}")
}

/// A copy without credentials and without white space around it, piece by piece.
async fn clean(
    written: Spooled,
    attachment: &Attachment,
    context: ExecContext<'_>,
) -> Result<Spooled, CliError> {
    let mut copy = Trimmed {
        spool: Spool::new(context.limits.spool_bytes, context.runtime.spools.clone()),
        blank: Vec::new(),
    };
    let mut redactor = attachment.redactor();
    let mut pieces = Box::pin(written.into_stream());
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|e| not_spooled(SpoolError::Disk(e)))?;
        copy.write(&redactor.push(&piece)).await?;
    }
    copy.write(&redactor.finish()).await?;
    copy.spool.finish().await.map_err(not_spooled)
}

/// Keeps white space back until something else follows.
struct Trimmed {
    spool: Spool,
    blank: Vec<u8>,
}

impl Trimmed {
    async fn write(&mut self, piece: &[u8]) -> Result<(), CliError> {
        let text = match self.spool.is_empty() {
            true => piece.trim_ascii_start(),
            false => piece,
        };
        let kept = text.trim_ascii_end().len();
        if kept > 0 {
            let blank = std::mem::take(&mut self.blank);
            for part in [&blank[..], &text[..kept]] {
                self.spool.write(part).await.map_err(not_spooled)?;
            }
        }
        self.blank.extend_from_slice(&text[kept..]);
        Ok(())
    }
}

pub fn not_spooled(error: SpoolError) -> CliError {
    if error.is_shortage() {
        return CliError::Busy(Shortage::Spool);
    }
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    CliError::Output(format!("{error}{}", cause.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Quota;

    #[test]
    fn long_text_keeps_both_ends() {
        let text = format!("first{}last", "ü".repeat(LONGEST_ERROR));
        let short = shortened(&text);
        assert!(short.starts_with("firstü") && short.ends_with("ülast"));
        assert!(short.len() <= LONGEST_ERROR + 10);
        assert_eq!(shortened("short"), "short");
    }

    #[tokio::test]
    async fn white_space_around_a_text_in_pieces_is_left_out() {
        for pieces in [
            &["  \n", " a", " ", "\n b ", " \n"][..],
            &["a \n b"],
            &["\n", "a \n b", "\n"],
        ] {
            let mut copy = Trimmed {
                spool: Spool::new(1000, Quota::new(1000)),
                blank: Vec::new(),
            };
            for piece in pieces {
                copy.write(piece.as_bytes()).await.unwrap();
            }
            let text = copy.spool.finish().await.unwrap();
            assert_eq!(text.in_memory().unwrap(), b"a \n b", "{pieces:?}");
        }
    }
}
