//! What would become of a call: the same steps as those of a real one, without the tool. Nothing is
//! run, counted, issued or used up, and nothing is audited.

use super::report::{Report, Step};
use super::{
    Call, CallParts, Context, Input, Request, admit, credentials, files, mcp, program, resolve,
};
use crate::catalog::{Invocation, Tool};
use crate::credential::UsedSecrets;
use crate::error::{CallError, ExecError, Explanation};
use crate::exec::http::HttpError;

pub async fn explain(request: Request<'_>, context: Context<'_>) -> Explanation {
    let mut report = Report::Dry(Vec::new());
    let outcome = walk(request, context, &mut report).await;
    let steps = match report {
        Report::Dry(steps) => steps,
        Report::Call(_) => Vec::new(),
    };
    Explanation::of_call(outcome.as_ref().copied(), steps)
}

async fn walk(
    request: Request<'_>,
    context: Context<'_>,
    report: &mut Report<'_, '_>,
) -> Result<(), CallError> {
    report.reach(Step::Resolve);
    let tool = resolve(request.name, &context)?;
    report.tell(|| format!("'{}' of provider '{}'", tool.name, tool.provider.name));
    let work = context.work(request.identity);
    let secrets = UsedSecrets::default();
    let mut call = Call::new(&request, tool, &secrets, context);
    let asked = CallParts {
        args: request.args,
        upstream_url: request.upstream_url,
        confirm: request.confirm,
    };
    let ready = admit(&mut call, tool, asked, &work, report).await?;
    if let (Invocation::Files(operation), Input::Arguments { args, .. }) =
        (&tool.invocation, ready.input)
    {
        report.reach(Step::File);
        let place = files::check(&call, *operation, args).await?;
        report.tell(|| place);
    }
    report.reach(Step::Credential);
    let names = tool.provider.key_names().join(", ");
    report.tell(|| match names.as_str() {
        "" => "none is needed".to_owned(),
        names => names.to_owned(),
    });
    credential(&call, tool)
}

/// Whether the credential of a call is there. What has to be minted isn't.
fn credential(call: &Call<'_>, tool: &Tool) -> Result<(), CallError> {
    match &tool.invocation {
        Invocation::Http(_) => {
            let resolved = credentials::for_http(call).map(drop);
            Ok(resolved.map_err(|error: HttpError| ExecError::from(error))?)
        }
        Invocation::Mcp(_) => Ok(mcp::target(call).map(drop).map_err(ExecError::from)?),
        Invocation::Cli | Invocation::Atip(_) => match tool.program() {
            Some(cli) => Ok(program::equip(call, cli)
                .map(drop)
                .map_err(ExecError::from)?),
            None => Ok(()),
        },
        // Functions and intents have variables only.
        Invocation::Cmp(_) | Invocation::Runfile(_) => match call.provider.program() {
            Some(cli) => Ok(program::equip(call, cli)
                .map(drop)
                .map_err(ExecError::from)?),
            None => Ok(()),
        },
        // That of its destination was looked for there.
        Invocation::Files(_) => Ok(()),
    }
}
