//! What a token lets its caller do with the tools of its scopes, and what a lead agent's token
//! leaves of it.

use serde_json::Value;

use super::{KeyArgs, given, verification_key};
use crate::auth::scope;
use crate::auth::token::{self, Claims, Namespace, Verifier};
use crate::config::Environment;
use crate::error::{Code, Failure};
use crate::policy::{CommandPattern, Rules, Test, read_restriction};

#[derive(clap::Args)]
pub struct Delegation {
    /// Allow only these tools: gh, gh:pr_*, "gh pr list"; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    allow_tool: Vec<CommandPattern>,

    /// Deny these tools or commands: gh:repo_*, "gh repo delete"; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    deny_command: Vec<CommandPattern>,

    /// Deny tools by what they do: destructive=false, network=false, cost=low; repeatable
    #[arg(long, value_name = "EFFECT=VALUE", value_parser = read_restriction)]
    restrict: Vec<Test>,

    /// Have calls confirmed by what they do: effects.network, effects.cost=high; repeatable
    #[arg(long, value_name = "EFFECT", value_parser = Test::read_item)]
    confirm: Vec<Test>,

    /// The token of a lead agent, which the new one must stay within; - reads it from stdin
    #[arg(long, value_name = "TOKEN")]
    lead: Option<String>,
}

impl Delegation {
    fn rules(&self) -> Rules {
        let given = Rules {
            auto_approve: None,
            require_confirmation: self.confirm.clone(),
            allowed_tools: Some(self.allow_tool.clone()).filter(|it| !it.is_empty()),
            denied_commands: self.deny_command.clone(),
            effect_restrictions: self.restrict.clone(),
        };
        // Of two restrictions on one effect, the narrower one.
        Rules::default().and(&given)
    }

    /// Reads the lead's token where it comes from standard input, for a command that applies it
    /// more than once: standard input can be read once only.
    pub fn read_lead(&mut self) -> Result<(), Failure> {
        if let Some(lead) = self.lead.take() {
            self.lead = Some(given(lead)?.trim().to_owned());
        }
        Ok(())
    }

    /// The claims with `ati.delegation`, within those of the lead's token where one is given.
    pub fn apply(&self, mut claims: Claims, key: &KeyArgs) -> Result<Value, Failure> {
        let mut rules = self.rules();
        if let Some(lead) = &self.lead {
            let lead = given(lead.clone())?;
            let (theirs, carried) = verified(lead.trim(), key)?;
            narrow(&mut claims, &theirs)?;
            let wider = |e| Failure::from_error(Code::ScopeDenied, e);
            rules = carried.narrowed_by(&rules).map_err(wider)?;
        }
        let unsigned = |e| Failure::new(Code::ExecutionFailed, "the claims").because(e);
        let mut claims = serde_json::to_value(&claims).map_err(unsigned)?;
        if !rules.is_empty() {
            claims["ati"]["delegation"] = rules.to_value();
        }
        Ok(claims)
    }
}

/// The claims of the lead's token, and the rules that it carries. It has to be valid here: a token
/// that anyone could have written narrows nothing.
fn verified(lead: &str, key: &KeyArgs) -> Result<(Claims, Rules), Failure> {
    let env = Environment::read();
    let mut expect = env.expectations(None, None);
    let named =
        token::inspect(lead).and_then(|claims| Some(claims.get("aud")?.as_str()?.to_owned()));
    expect.audiences.extend(named);
    let verifier = Verifier::new(&verification_key(key, &env)?, &expect);
    let invalid = |fault| Failure::new(Code::InvalidToken, "the lead's token").because(fault);
    let identity = verifier
        .verify(lead, crate::clock::unix_now())
        .map_err(invalid)?;
    let claims = verifier.decode(lead).map_err(invalid)?;
    let rules = identity.delegation.as_deref().cloned().unwrap_or_default();
    Ok((claims, rules))
}

/// What isn't a rule: scopes, the end, the tenant and the limits.
fn narrow(claims: &mut Claims, lead: &Claims) -> Result<(), Failure> {
    let is_covered = |word: &&str| {
        let granted = lead.scope.split_whitespace();
        granted
            .into_iter()
            .any(|granted| scope::covers_word(granted, word))
    };
    if let Some(wider) = claims
        .scope
        .split_whitespace()
        .find(|word| !is_covered(word))
    {
        let message = format!("the scope '{wider}' is not within those of the lead's token");
        return Err(Failure::new(Code::ScopeDenied, message));
    }
    claims.exp = claims.exp.min(lead.exp);
    if claims.aud != lead.aud {
        let message = format!(
            "the audience '{}' is another one than that of the lead's token",
            claims.aud
        );
        return Err(Failure::new(Code::ScopeDenied, message));
    }
    // A lead's token without `ati` has no customer, so its helper has none either.
    let none = Namespace::default();
    let theirs = lead.ati.as_ref().unwrap_or(&none);
    if let Some(own) = &mut claims.ati {
        if own.customer_id.is_some() && own.customer_id != theirs.customer_id {
            let message = "--customer-id is another one than that of the lead's token";
            return Err(Failure::new(Code::ScopeDenied, message));
        }
        own.customer_id.clone_from(&theirs.customer_id);
        for (pattern, rate) in &theirs.rate {
            if own.rate.insert(pattern.clone(), rate.clone()).is_some() {
                let message = format!("--rate: the lead's token limits '{pattern}' already");
                return Err(Failure::new(Code::ScopeDenied, message));
            }
        }
    }
    Ok(())
}

fn parse_pattern(text: &str) -> Result<CommandPattern, String> {
    CommandPattern::new(text).ok_or_else(|| "the pattern is empty".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(aud: &str, customer: Option<&str>) -> Claims {
        Claims {
            iss: None,
            sub: "s".to_owned(),
            aud: aud.to_owned(),
            iat: 0,
            exp: 60,
            jti: None,
            scope: "tool:a".to_owned(),
            job_id: None,
            sandbox_id: None,
            ati: Some(Namespace {
                v: 1,
                customer_id: customer.map(str::to_owned),
                ..Namespace::default()
            }),
        }
    }

    #[test]
    fn helper_of_a_lead_without_a_customer_has_none_and_the_same_audience() {
        let mut lead = claims("edge", None);
        lead.ati = None;
        assert!(narrow(&mut claims("edge", None), &lead).is_ok());
        assert!(narrow(&mut claims("edge", Some("victim")), &lead).is_err());
        assert!(narrow(&mut claims("other", None), &lead).is_err());
    }
}
