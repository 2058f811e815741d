//! What a program wrote to its standard output, as the result of a call.

use super::CliError;
use crate::credential::Attachment;
use crate::error::Shortage;
use crate::exec::{Answer, ExecContext, SpooledJson};
use crate::runtime::ComputeError;
use crate::spool::{Spool, SpoolError};

/// A text up to this size is looked through where it is: that takes a millisecond or two.
const SMALL: usize = 1 << 20;

/// JSON where it is JSON, a text otherwise; without white space around it, and without credentials.
pub async fn answer(
    written: &[u8],
    attachment: &Attachment,
    provider: &str,
    context: ExecContext<'_>,
) -> Result<Answer, CliError> {
    let mut text = written.trim_ascii().to_vec();
    if text.len() <= context.limits.spool_bytes.min(SMALL) {
        attachment.redact(&mut text);
        return Ok(Answer::Memory(Answer::from_bytes(&text)));
    }
    let mut spool = Spool::new(context.limits.spool_bytes, context.runtime.spools.clone());
    let mut redactor = attachment.redactor();
    for piece in text.chunks(SMALL) {
        let clean = redactor.push(piece);
        spool.write(&clean).await.map_err(not_spooled)?;
    }
    spool.write(&redactor.finish()).await.map_err(not_spooled)?;
    let body = spool.finish().await.map_err(not_spooled)?;
    let check = move || Answer::Spooled(SpooledJson::check_blocking(body));
    let time = context.limits.timeout;
    let checked = context.runtime.compute.run(provider, time, check).await;
    checked.map_err(|error| match error {
        ComputeError::Full => CliError::Busy(Shortage::Queue),
        ComputeError::TimedOut => CliError::Busy(Shortage::Time),
        ComputeError::Failed => CliError::Output(error.to_string()),
    })
}

fn not_spooled(error: SpoolError) -> CliError {
    if error.is_shortage() {
        return CliError::Busy(Shortage::Spool);
    }
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    CliError::Output(format!("{error}{}", cause.unwrap_or_default()))
}
