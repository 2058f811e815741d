use serde_json::{Value, json};

use super::*;

fn rules(value: Value) -> Rules {
    Rules::read(&value).unwrap_or_else(|why| panic!("{value}: {why:?}"))
}

fn policy(value: Value) -> Policy {
    Policy {
        rules: rules(value),
        ..Policy::default()
    }
}

fn named(tool: &str) -> Named<'_> {
    Named {
        tool,
        provider: tool.split(':').next().unwrap_or_default(),
        program: None,
        command: "",
        words: &[],
    }
}

fn declared(flags: &[(Flag, bool)]) -> Facts {
    let facts = Facts {
        trust: Trust::High,
        ..Facts::default()
    };
    let with = |facts: Facts, (flag, value): &(Flag, bool)| facts.with(*flag, Some(*value));
    flags.iter().fold(facts, with)
}

fn confirm(rule: &str) -> Verdict {
    Verdict::Confirm(rule.to_owned())
}

fn deny(rule: &str) -> Verdict {
    Verdict::Deny(rule.to_owned())
}

#[test]
fn without_rules_only_what_an_author_declares_wants_a_confirmation() {
    let none = Policy::default();
    let delete = declared(&[(Flag::Destructive, true)]);
    let inferred = Facts::default().with_inferred(Flag::Destructive, Some(true));
    let call = named("gh:repo_delete");
    let decide = |policy: &Policy, facts: &Facts| policy.decide(&call, facts, None);
    assert_eq!(decide(&none, &delete), confirm("declared.destructive"));
    let asks = declared(&[(Flag::Destructive, false), (Flag::Confirm, true)]);
    assert_eq!(decide(&none, &asks), confirm("declared.confirm"));
    assert_eq!(decide(&none, &inferred), Verdict::Allow);
    assert_eq!(decide(&none, &Facts::default()), Verdict::Allow);
    let careful = Policy {
        preset: Preset::Careful,
        ..Policy::default()
    };
    let rule = "policy.preset.careful.destructive";
    assert_eq!(decide(&careful, &inferred), confirm(rule));
    let approving = policy(json!({"autoApprove": ["effects.destructive"]}));
    assert_eq!(decide(&approving, &delete), Verdict::Allow);
    assert_eq!(decide(&approving, &asks), confirm("declared.confirm"));
}

#[test]
fn inferred_effect_of_a_tool_whose_author_declares_others_is_still_inferred() {
    let facts = declared(&[(Flag::Network, true)]).with_inferred(Flag::Destructive, Some(true));
    // What an author says is never replaced by what ati concludes.
    let facts = facts.with_inferred(Flag::Network, Some(false));
    assert_eq!(facts.get(Flag::Network), Some(true));
    assert!(facts.is_declared(Flag::Network) && !facts.is_declared(Flag::Destructive));
    assert!(!facts.is_declared(Flag::Confirm));
    let call = named("gh:repo_delete");
    let none = Policy::default();
    assert_eq!(none.decide(&call, &facts, None), Verdict::Allow);
    let careful = Policy {
        preset: Preset::Careful,
        ..Policy::default()
    };
    let rule = "policy.preset.careful.destructive";
    assert_eq!(careful.decide(&call, &facts, None), confirm(rule));
}

#[test]
fn rule_that_denies_comes_before_one_that_asks_and_both_have_a_name() {
    let policy = policy(json!({
        "deniedCommands": ["gh repo delete"],
        "allowedTools": ["gh", "git"],
        "effectRestrictions": {"network": false, "cost": "low", "trust": "medium", "duration": "60s"},
        "requireConfirmation": ["effects.deletes"],
    }));
    let decide = |tool: &str, facts: Facts| policy.decide(&named(tool), &facts, None);
    let plain = declared(&[]);
    assert_eq!(
        decide("gh:repo_delete", plain),
        deny("policy.deniedCommands: gh repo delete")
    );
    assert_eq!(decide("npm:install", plain), deny("policy.allowedTools"));
    let online = plain.with(Flag::Network, Some(true));
    assert_eq!(
        decide("gh:x", online),
        deny("policy.effectRestrictions.network")
    );
    let costly = Facts {
        cost: Some(Estimate::Medium),
        ..plain
    };
    assert_eq!(
        decide("gh:x", costly),
        deny("policy.effectRestrictions.cost")
    );
    let slow = Facts {
        duration: Some(Duration::from_secs(61)),
        ..plain
    };
    assert_eq!(
        decide("gh:x", slow),
        deny("policy.effectRestrictions.duration")
    );
    let unknown = Facts::default();
    assert_eq!(
        decide("gh:x", unknown),
        deny("policy.effectRestrictions.trust")
    );
    let deletes = plain.with(Flag::Deletes, Some(true));
    assert_eq!(
        decide("gh:x", deletes),
        confirm("policy.requireConfirmation: effects.deletes")
    );
    assert_eq!(decide("gh:x", plain), Verdict::Allow);
}

#[test]
fn delegation_narrows_and_never_approves() {
    let delete = declared(&[(Flag::Destructive, true)]);
    let call = named("gh:repo_delete");
    let decide = |policy: &Policy, token: Value| policy.decide(&call, &delete, Some(&rules(token)));
    let approve = json!({"autoApprove": ["effects.destructive"]});
    let wanted = confirm("declared.destructive");
    assert_eq!(decide(&Policy::default(), approve.clone()), wanted);
    let approving = policy(approve.clone());
    assert_eq!(decide(&approving, approve), Verdict::Allow);
    assert_eq!(decide(&approving, json!({})), Verdict::Allow);
    assert_eq!(decide(&approving, json!({"autoApprove": []})), wanted);
    assert_eq!(
        decide(
            &approving,
            json!({"effectRestrictions": {"destructive": false}})
        ),
        deny("delegation.effectRestrictions.destructive")
    );
}

#[test]
fn lead_can_give_no_more_than_it_has() {
    let lead =
        rules(json!({"allowedTools": ["gh", "git:*"], "effectRestrictions": {"cost": "low"}}));
    let own = rules(json!({
        "allowedTools": ["gh:pr_*"],
        "effectRestrictions": {"cost": "high", "destructive": false},
    }));
    let both = lead.narrowed_by(&own).unwrap().to_value();
    let restrictions = json!({"cost": "low", "destructive": false});
    assert_eq!(both["allowedTools"], json!(["gh:pr_*"]));
    assert_eq!(both["effectRestrictions"], restrictions);
    let wider = rules(json!({"allowedTools": ["gh:pr_*", "npm"]}));
    assert_eq!(lead.narrowed_by(&wider), Err(Wider("npm".to_owned())));
}

/// The same numbers in every run: a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % most
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn some<T: Clone>(&mut self, of: &[T], most: usize) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.one(of).clone()).collect()
    }
}

const PATTERNS: &[&str] = &[
    "*",
    "gh",
    "git",
    "g*",
    "gh:*",
    "gh:repo_*",
    "gh:repo_delete",
    "gh repo",
    "gh repo delete",
    "gh * delete",
    "github",
    "npm install",
    "n*",
    "g*:x",
    "*:repo_delete",
    "* repo",
];
const TESTS: &[&str] = &[
    "effects.network",
    "effects.destructive",
    "effects.confirm",
    "effects.reversible=false",
    "effects.idempotent",
    "effects.network=false",
    "effects.cost=low",
    "effects.cost=high",
    "effects.trust=low",
    "effects.trust=medium",
    "effects.duration=5s",
    "effects.deletes",
];

fn any_rules(dice: &mut Dice) -> Rules {
    let tests = |dice: &mut Dice, most| -> Vec<Test> {
        let texts = dice.some(TESTS, most);
        texts
            .iter()
            .map(|text| Test::read_item(text).unwrap())
            .collect()
    };
    let patterns = |dice: &mut Dice| -> Vec<CommandPattern> {
        let texts = dice.some(PATTERNS, 3);
        texts
            .iter()
            .filter_map(|text| CommandPattern::new(text))
            .collect()
    };
    let groups: Vec<Vec<Test>> = (0..dice.below(4))
        .map(|_| {
            // As in an object, which has each name once.
            let mut group = tests(dice, 3);
            group.sort_by_key(|test| test.name());
            group.dedup_by_key(|test| test.name());
            group
        })
        .filter(|group| !group.is_empty())
        .collect();
    let restricting: Vec<Test> = tests(dice, 2);
    Rules {
        auto_approve: Some(groups).filter(|_| dice.below(3) > 0),
        require_confirmation: tests(dice, 1),
        allowed_tools: Some(patterns(dice)).filter(|_| dice.below(2) > 0),
        denied_commands: patterns(dice).into_iter().take(dice.below(2)).collect(),
        effect_restrictions: restricting.into_iter().take(dice.below(3)).collect(),
    }
}

fn any_facts(dice: &mut Dice) -> Facts {
    let facts = Facts {
        cost: *dice.one(&[None, Some(Estimate::Free), Some(Estimate::High)]),
        duration: *dice.one(&[
            None,
            Some(Duration::from_secs(1)),
            Some(Duration::from_secs(9)),
        ]),
        trust: *dice.one(&[Trust::VeryLow, Trust::Low, Trust::Medium, Trust::High]),
        ..Facts::default()
    };
    let with = |facts: Facts, flag: Flag| {
        let value = *dice.one(&[None, Some(true), Some(false)]);
        match dice.below(2) > 0 {
            true => facts.with(flag, value),
            false => facts.with_inferred(flag, value),
        }
    };
    Flag::ALL.into_iter().fold(facts, with)
}

/// How much a verdict allows.
fn size(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Deny(_) => 0,
        Verdict::Confirm(_) => 1,
        Verdict::Allow => 2,
    }
}

#[test]
fn effective_policy_is_never_larger_than_either_part() {
    const TOOLS: &[(&str, Option<&str>, &str, &str)] = &[
        ("gh:repo_delete", Some("gh"), "repo delete", ""),
        ("gh:pr_list", None, "", ""),
        ("github:x", Some("gh"), "x", ""),
        ("gh", Some("gh"), "", "repo -y delete me"),
        ("git:x", None, "", ""),
        ("npm:install", Some("npm"), "install", ""),
        ("g:y:x", None, "", ""),
    ];
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let (mut narrowed, mut asked, mut allowed) = (0, 0, 0);
    for round in 0..200_000 {
        let (one, two) = (any_rules(&mut dice), any_rules(&mut dice));
        let facts = any_facts(&mut dice);
        let (tool, program, command, words) = dice.one(TOOLS);
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let call = Named {
            program: *program,
            command,
            words: &words,
            ..named(tool)
        };
        let preset = *dice.one(&[Preset::Declared, Preset::Careful]);
        let of = |rules: &Rules| Policy {
            rules: rules.clone(),
            preset,
            ..Policy::default()
        };
        // What the edge decides for a caller with a delegation.
        let effective = of(&one).decide(&call, &facts, Some(&two));
        let own = of(&one).decide(&call, &facts, None);
        assert!(
            size(&effective) <= size(&own),
            "round {round}: {one:?}, {two:?}, {facts:?}"
        );
        // Of the token's part by itself: the edge approves of everything that the token may.
        let open = Rules {
            auto_approve: Some(vec![
                vec![Test::Flag(Flag::Destructive, true)],
                vec![Test::Flag(Flag::Confirm, true)],
            ]),
            ..Rules::default()
        };
        let token = of(&open).decide(&call, &facts, Some(&two));
        assert!(
            size(&effective) <= size(&token),
            "round {round}: {one:?}, {two:?}, {facts:?}"
        );
        // What a lead agent gives away, written and read again.
        let given = Rules::read(&one.and(&two).to_value()).unwrap();
        let given = of(&open).decide(&call, &facts, Some(&given));
        for part in [&one, &two] {
            let part = of(&open).decide(&call, &facts, Some(part));
            assert!(
                size(&given) <= size(&part),
                "round {round}: {one:?}, {two:?}, {facts:?}"
            );
        }
        narrowed += u32::from(size(&effective) < size(&own));
        asked += u32::from(size(&effective) == 1);
        allowed += u32::from(size(&effective) == 2);
    }
    // The rounds are about something.
    assert!(
        narrowed > 1000 && asked > 1000 && allowed > 1000,
        "{narrowed} {asked} {allowed}"
    );
}

#[test]
fn effect_that_is_named_twice_in_a_group_is_unreadable() {
    for value in [
        json!({"autoApprove": [{"effects.destructive": false, "destructive": true}]}),
        json!({"effectRestrictions": {"destructive": false, "effects.destructive": false}}),
    ] {
        assert!(Rules::read(&value).is_err(), "{value}");
    }
}
