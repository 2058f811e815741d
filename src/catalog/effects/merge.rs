//! One set of effects out of several, member by member: the operator's word over a document's, and
//! both over what ati concludes. Who declares one more effect takes none of the others back.

use super::{Cost, Effects, Filesystem, Interactive, KnownEffects, RunTime};

impl KnownEffects {
    /// These of the operator, and of the document's those that the operator leaves open.
    #[must_use]
    pub fn over(self, document: KnownEffects) -> Self {
        if !document.is_declared() {
            return self.with_inferred(&document.effects);
        }
        let mut effects = self.effects.or(&document.effects);
        // A document that says both wants the confirmation because data is destroyed.
        let is_harmless = self.effects.destructive == Some(false);
        if is_harmless && document.effects.destructive == Some(true) {
            effects.confirm = self.effects.confirm;
        }
        // A word of the document's is left: it is trusted no more than its author.
        let is_mixed = effects != self.effects;
        let source = match is_mixed && document.source.trust() < self.source.trust() {
            true => document.source,
            false => self.source,
        };
        let mut inferred = self.inferred;
        let is_open = |flag: &_| self.effects.flag(*flag).is_none();
        inferred.extend(document.inferred.into_iter().filter(is_open));
        KnownEffects {
            effects,
            source,
            inferred,
        }
    }

    /// With what ati concludes about effects that no author mentions.
    #[must_use]
    pub fn with_inferred(mut self, concluded: &Effects) -> Self {
        if self.is_declared() {
            let added = concluded
                .flags()
                .into_iter()
                .filter(|(flag, value)| value.is_some() && self.effects.flag(*flag).is_none());
            let added: Vec<_> = added.map(|(flag, _)| flag).collect();
            self.inferred.extend(added);
        }
        self.effects = self.effects.or(concluded);
        self
    }
}

impl Effects {
    /// These, and `other` for what these leave open. A list that is empty says nothing.
    #[must_use]
    pub fn or(&self, other: &Effects) -> Effects {
        Effects {
            filesystem: each(&self.filesystem, &other.filesystem, Filesystem::or),
            network: self.network.or(other.network),
            subprocess: self.subprocess.or(other.subprocess),
            idempotent: self.idempotent.or(other.idempotent),
            reversible: self.reversible.or(other.reversible),
            destructive: self.destructive.or(other.destructive),
            confirm: self.confirm.or(other.confirm),
            creates: list(&self.creates, &other.creates),
            modifies: list(&self.modifies, &other.modifies),
            deletes: list(&self.deletes, &other.deletes),
            cost: each(&self.cost, &other.cost, Cost::or),
            duration: each(&self.duration, &other.duration, RunTime::or),
            interactive: each(&self.interactive, &other.interactive, Interactive::or),
        }
    }
}

impl Filesystem {
    fn or(&self, other: &Self) -> Self {
        Filesystem {
            read: self.read.or(other.read),
            write: self.write.or(other.write),
            delete: self.delete.or(other.delete),
            paths: list(&self.paths, &other.paths),
        }
    }
}

impl Cost {
    fn or(&self, other: &Self) -> Self {
        Cost {
            estimate: self.estimate.or(other.estimate),
            billable: self.billable.or(other.billable),
        }
    }
}

impl RunTime {
    fn or(&self, other: &Self) -> Self {
        let text = |one: &Option<String>, two: &Option<String>| one.clone().or_else(|| two.clone());
        RunTime {
            typical: text(&self.typical, &other.typical),
            timeout: text(&self.timeout, &other.timeout),
        }
    }
}

impl Interactive {
    fn or(&self, other: &Self) -> Self {
        Interactive {
            stdin: self.stdin.or(other.stdin),
            prompts: self.prompts.or(other.prompts),
            tty: self.tty.or(other.tty),
        }
    }
}

fn each<T: Clone>(one: &Option<T>, other: &Option<T>, or: fn(&T, &T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(or(one, other)),
        (one, other) => one.as_ref().or(other.as_ref()).cloned(),
    }
}

fn list(one: &[String], other: &[String]) -> Vec<String> {
    match one.is_empty() {
        true => other.to_vec(),
        false => one.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;
    use crate::catalog::json_reader::Findings;
    use crate::policy::Flag;
    use serde_json::{Value, json};

    fn known(value: &Value, source: Source) -> KnownEffects {
        KnownEffects {
            effects: Effects::read(value, "", &mut Findings::default()),
            source,
            inferred: Vec::new(),
        }
    }

    fn written(known: &KnownEffects) -> Value {
        serde_json::to_value(&known.effects).unwrap()
    }

    #[test]
    fn operator_adds_to_a_document_and_takes_back_only_what_it_names() {
        let document = known(
            &json!({"destructive": true, "confirm": true, "network": true, "deletes": ["a"],
                    "filesystem": {"write": true, "delete": true},
                    "duration": {"typical": "1s"}}),
            Source::Native,
        );
        let own = known(
            &json!({"cost": {"estimate": "low"}, "confirm": false,
                    "filesystem": {"delete": false}, "duration": {"timeout": "9s"}}),
            Source::Org,
        );
        let merged = own.over(document);
        assert_eq!(
            written(&merged),
            json!({"destructive": true, "confirm": false, "network": true, "deletes": ["a"],
                   "filesystem": {"write": true, "delete": false}, "cost": {"estimate": "low"},
                   "duration": {"typical": "1s", "timeout": "9s"}})
        );
        assert_eq!(merged.source, Source::Org);
        assert!(merged.declares(Flag::Destructive) && merged.inferred.is_empty());
    }

    #[test]
    fn harmless_by_the_operator_takes_the_confirmation_of_a_destructive_tool_back() {
        let merged = |own: Value, document: Value| {
            written(&known(&own, Source::Org).over(known(&document, Source::Native)))
        };
        let both = json!({"destructive": true, "confirm": true});
        let harmless = json!({"destructive": false});
        assert_eq!(merged(harmless.clone(), both.clone()), harmless);
        let asks = json!({"destructive": false, "confirm": true});
        assert_eq!(merged(asks.clone(), both), asks);
        // Where nothing is destroyed, its author wants it for another reason.
        assert_eq!(merged(harmless, json!({"confirm": true})), asks);
    }

    #[test]
    fn word_that_is_left_of_a_document_is_trusted_no_more_than_its_author() {
        let shim = || known(&json!({"destructive": true}), Source::Community);
        let adds = known(&json!({"network": true}), Source::Org);
        assert_eq!(adds.over(shim()).source, Source::Community);
        let replaces = known(&json!({"destructive": false}), Source::Org);
        assert_eq!(replaces.over(shim()).source, Source::Org);
    }

    #[test]
    fn what_ati_concludes_fills_in_and_stays_inferred() {
        let concluded = known(
            &json!({"network": true, "destructive": true, "idempotent": true}),
            Source::Inferred,
        );
        for own in [
            known(&json!({"idempotent": false}), Source::Org).with_inferred(&concluded.effects),
            known(&json!({"idempotent": false}), Source::Org).over(concluded.clone()),
        ] {
            let expected = json!({"network": true, "destructive": true, "idempotent": false});
            assert_eq!(written(&own), expected);
            assert_eq!(own.inferred, [Flag::Network, Flag::Destructive]);
            assert!(own.declares(Flag::Idempotent) && !own.declares(Flag::Destructive));
        }
        assert!(!concluded.declares(Flag::Network));
    }
}
