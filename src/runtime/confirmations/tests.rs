use super::*;

fn call(caller: u8, tool: &str, arguments: u8) -> Binding {
    Binding {
        caller: [caller; 32],
        tool: tool.to_owned(),
        arguments: [arguments; 32],
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn token_is_for_one_call_and_once_and_a_mistake_does_not_use_it_up() {
    let dir = tempfile::tempdir().unwrap();
    let confirmations = Confirmations::new(dir.path());
    let own = call(1, "t", 1);
    let token = confirmations.issue(&own, MINUTE).await.unwrap().token;
    // Another process with the same folder.
    let other = Confirmations::new(dir.path());
    for (call, fault) in [
        (call(2, "t", 1), ConfirmationFault::OtherCaller),
        (call(1, "u", 1), ConfirmationFault::OtherTool),
        (call(1, "t", 2), ConfirmationFault::ChangedArguments),
    ] {
        assert_eq!(other.consume(&token, &call).await.unwrap(), Err(fault));
    }
    let unknown = Err(ConfirmationFault::Unknown);
    assert_eq!(other.consume("ati-confirm_x", &own).await.unwrap(), unknown);
    assert_eq!(
        other.consume(&"x".repeat(200), &own).await.unwrap(),
        unknown
    );
    assert_eq!(other.consume(&token, &own).await.unwrap(), Ok(()));
    assert_eq!(confirmations.consume(&token, &own).await.unwrap(), unknown);
    let short = confirmations
        .issue(&own, Duration::ZERO)
        .await
        .unwrap()
        .token;
    let expired = Err(ConfirmationFault::Expired);
    assert_eq!(confirmations.consume(&short, &own).await.unwrap(), expired);
    let names = std::fs::read_dir(dir.path().join("confirmations")).unwrap();
    for name in names {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(!name.contains(&short), "{name}");
    }
}

#[tokio::test]
async fn caller_with_too_many_loses_its_oldest_and_no_one_elses() {
    let dir = tempfile::tempdir().unwrap();
    let confirmations = Confirmations::new(dir.path());
    let theirs = call(2, "t", 1);
    let kept = confirmations.issue(&theirs, MINUTE).await.unwrap().token;
    let own = call(1, "t", 1);
    let first = confirmations
        .issue(&own, Duration::from_secs(5))
        .await
        .unwrap()
        .token;
    let mut last = String::new();
    for _ in 0..MOST_OF_ONE {
        last = confirmations.issue(&own, MINUTE).await.unwrap().token;
    }
    let unknown = Err(ConfirmationFault::Unknown);
    assert_eq!(confirmations.consume(&first, &own).await.unwrap(), unknown);
    assert_eq!(confirmations.consume(&last, &own).await.unwrap(), Ok(()));
    assert_eq!(confirmations.consume(&kept, &theirs).await.unwrap(), Ok(()));
}

#[tokio::test]
async fn confirmations_that_have_expired_take_no_room_of_others() {
    for (expires, has_room) in [
        (crate::clock::unix_now() - 10, true),
        (u64::MAX >> 1, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let confirmations = Confirmations::new(dir.path());
        let own = call(1, "t", 1);
        confirmations.issue(&own, MINUTE).await.unwrap();
        for other in 0..MOST {
            let name = format!("{expires}-{other:064x}-{other:064x}");
            std::fs::write(dir.path().join("confirmations").join(name), "{}").unwrap();
        }
        let issued = confirmations.issue(&own, MINUTE).await;
        assert_eq!(issued.is_ok(), has_room);
    }
}
