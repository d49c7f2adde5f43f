//! Tests of keys and invitations.

use std::os::unix::fs::PermissionsExt;

use super::{Joined, Login, MachineEntry, Part, Rights, Token, Trust, Unwelcome, Wish};
use squall_files::place::Place;

struct Folder(Trust);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("squall-trust-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&dir));
        Self(Trust::of(&Place::at(&dir).unwrap()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(self.0.folder.parent().unwrap()));
    }
}

#[test]
fn cve_2012_3493_an_invitation_is_taken_up_once_by_whom_it_is_for_and_in_time() {
    let folder = Folder::new("once");
    let trust = &folder.0;
    let token = trust.invite("n2", Part::Node, 100, 60).unwrap();
    assert_eq!(Token::parse(&token.to_string()), Some(token.clone()));
    let (mine, other) = ([1; 32], [2; 32]);
    assert!(trust.enrol("n3", &mine, (&token.secret, Wish::Node), 110, false).is_err());
    assert!(trust.enrol("n2", &mine, (&[0; 16], Wish::Node), 110, false).is_err());
    assert!(trust.enrol("n2", &mine, (&token.secret, Wish::Node), 160, false).is_err());
    assert!(!trust.knows("n2", &mine));
    trust.enrol("n2", &mine, (&token.secret, Wish::Node), 110, false).unwrap();
    assert!(trust.knows("n2", &mine) && !trust.knows("n2", &other) && !trust.knows("n3", &mine));
    // The answer got lost, so the same machine asks again. Another machine is late.
    trust.enrol("n2", &mine, (&token.secret, Wish::Node), 110, false).unwrap();
    assert!(trust.enrol("n2", &other, (&token.secret, Wish::Node), 110, false).is_err());
    assert!(trust.invite("n2", Part::Node, 120, 60).is_err());
}

#[test]
fn cve_2026_25506_the_key_of_a_machine_is_good_for_that_machine_only() {
    let folder = Folder::new("own");
    let trust = &folder.0;
    let keys = [[1; 32], [2; 32]];
    for (name, key) in ["n1", "n2"].into_iter().zip(keys) {
        let token = trust.invite(name, Part::Node, 100, 60).unwrap();
        trust.enrol(name, &key, (&token.secret, Wish::Node), 110, false).unwrap();
    }
    assert!(trust.rights("n1", &keys[0]).any() && trust.rights("n2", &keys[1]).any());
    assert!(!trust.rights("n2", &keys[0]).any() && !trust.rights("n1", &keys[1]).any());
    assert!(!trust.rights("n3", &keys[0]).any());
}

#[test]
fn a_newer_invitation_replaces_the_one_before_and_a_revoked_node_is_unknown() {
    let folder = Folder::new("revoke");
    let trust = &folder.0;
    let old = trust.invite("n2", Part::Node, 100, 60).unwrap();
    let new = trust.invite("n2", Part::Node, 100, 60).unwrap();
    assert!(trust.enrol("n2", &[1; 32], (&old.secret, Wish::Node), 110, false).is_err());
    trust.enrol("n2", &[1; 32], (&new.secret, Wish::Node), 110, false).unwrap();
    trust.note_address("n2", "10.0.0.2:6818").unwrap();
    assert_eq!(trust.peer("n2").unwrap().unwrap().address, "10.0.0.2:6818");
    assert!(trust.revoke("n2").unwrap() && !trust.revoke("n2").unwrap());
    assert!(!trust.knows("n2", &[1; 32]));
    assert!(trust.enrol("n2", &[1; 32], (&new.secret, Wish::Node), 110, false).is_err());
}

#[test]
fn a_token_makes_a_node_or_a_login_host_and_neither_is_the_other() {
    let folder = Folder::new("parts");
    let trust = &folder.0;
    let (mine, other) = ([1; 32], [2; 32]);
    let root = Login { allow_root: true };
    let token = trust.invite("login1", Part::Login(root), 100, 60).unwrap();
    let refused = trust.enrol("login1", &mine, (&token.secret, Wish::Node), 110, false).unwrap_err();
    assert!(format!("{refused:?}").contains("a login host: use `squall login`"), "{refused:?}");
    trust.enrol("login1", &mine, (&token.secret, Wish::Login), 110, false).unwrap();
    trust.enrol("login1", &mine, (&token.secret, Wish::Login), 110, false).unwrap();
    assert!(trust.enrol("login1", &other, (&token.secret, Wish::Login), 110, false).is_err());
    assert_eq!(trust.rights("login1", &mine), Rights { login: Some(root), ..Rights::default() });
    assert!(!trust.knows("login1", &mine) && trust.peer("login1").unwrap().is_none(), "it is no node");
    assert!(!trust.rights("login1", &other).any() && !trust.rights("login2", &mine).any());
    assert!(trust.invite("login1", Part::Node, 120, 60).is_err(), "a name is one machine");
    let token = trust.invite("n2", Part::Node, 100, 60).unwrap();
    assert!(trust.enrol("n2", &other, (&token.secret, Wish::Login), 110, false).is_err());
    trust.enrol("n2", &other, (&token.secret, Wish::Node), 110, false).unwrap();
    assert_eq!(trust.rights("n2", &other), Rights { node: true, ..Rights::default() });
}

#[test]
fn what_a_machine_may_do_can_be_changed_listed_and_ended() {
    let folder = Folder::new("grant");
    let trust = &folder.0;
    let plain = Login::default();
    assert!(!trust.grant("n2", plain).unwrap(), "it has not joined");
    trust.own_node("n2", &[1; 32]).unwrap();
    assert!(trust.grant("n2", plain).unwrap());
    assert_eq!(trust.rights("n2", &[1; 32]), Rights { node: true, login: Some(plain), ..Rights::default() });
    assert!(trust.grant("n2", Login { allow_root: true }).unwrap());
    assert_eq!(trust.rights("n2", &[1; 32]).login, Some(Login { allow_root: true }));
    trust.invite("login1", Part::Login(plain), 100, 60).unwrap();
    let listed = |now| -> Vec<_> {
        let short = |MachineEntry { name, part, invited_until_s, .. }| (name, part, invited_until_s);
        trust.list(now).unwrap().into_iter().map(short).collect()
    };
    let node = ("n2".to_owned(), Part::Node, None);
    let login = ("n2".to_owned(), Part::Login(Login { allow_root: true }), None);
    let invited = ("login1".to_owned(), Part::Login(plain), Some(160));
    assert_eq!(listed(110), [invited, node.clone(), login.clone()]);
    assert_eq!(listed(160), [node.clone(), login]);
    assert!(trust.revoke_login("n2").unwrap() && !trust.revoke_login("n2").unwrap());
    assert_eq!((listed(160), trust.rights("n2", &[1; 32])), (vec![node], Rights { node: true, ..Rights::default() }));
    assert!(trust.grant("n2", plain).unwrap() && trust.revoke("n2").unwrap());
    assert!(!trust.rights("n2", &[1; 32]).any());
}

#[test]
fn an_invitation_that_another_machine_withdraws_meanwhile_is_withdrawn() {
    let folder = Folder::new("at-once");
    let trust = &folder.0;
    for name in ["n1", "n2", "n3"] {
        trust.invite(name, Part::Node, 100, 60).unwrap();
    }
    let mut asked = 0;
    let tokens = trust.folder.join("tokens");
    // All files are removed between the reading of the first one and its removal.
    let which = |_: &super::Invitation<'_>| {
        asked += 1;
        for file in std::fs::read_dir(&tokens).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        true
    };
    trust.withdraw_invitations(which).unwrap();
    assert_eq!(asked, 1);
}

#[test]
fn a_key_that_several_need_at_once_is_one_key() {
    for round in 0..20 {
        let folder = Folder::new(&format!("one-key-{round}"));
        let (trust, together) = (&folder.0, &std::sync::Barrier::new(8));
        let keys: Vec<_> = std::thread::scope(|scope| {
            let needs = || {
                together.wait();
                trust.controller_key().unwrap().to_bytes()
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(needs)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }
}

#[test]
fn cve_2019_19727_2012_3492_2021_25311_names_lead_nowhere_else_and_nobody_else_reads_keys() {
    let folder = Folder::new("names");
    let trust = &folder.0;
    for name in ["../controller", "a/b", "..", "", ".draft", "n[1-2]"] {
        assert!(trust.peer(name).is_err() && trust.invite(name, Part::Node, 0, 60).is_err(), "{name}");
    }
    trust.controller_key().unwrap();
    assert_eq!(trust.controller_key().unwrap().to_bytes(), trust.controller_key().unwrap().to_bytes());
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(trust.folder.clone()), mode(trust.folder.join("controller"))), (0o700, 0o600));
}

#[test]
fn what_was_joined_is_remembered() {
    let folder = Folder::new("joined");
    assert_eq!(folder.0.joined().unwrap(), None);
    for (login, controllers) in [(false, "head:6817"), (true, "head1:6817,head2:6817")] {
        let controllers = Joined::addresses_of(controllers);
        let joined = Joined { name: "n2".into(), controllers, key: [7; 32], login };
        folder.0.note_joined(&joined).unwrap();
        assert_eq!(folder.0.joined().unwrap(), Some(joined));
    }
}

#[test]
fn nodes_that_share_a_token_come_back_without_their_keys() {
    let folder = Folder::new("shared");
    let trust = &folder.0;
    let token = trust.share("n[1-3]", 100, Some(60)).unwrap();
    let endless = trust.share("m1", 100, None).unwrap();
    let join = |name: &str, key: u8, token: &Token, now_s, connected| {
        trust.enrol(name, &[key; 32], (&token.secret, Wish::Node), now_s, connected)
    };
    for (name, key) in [("n1", 1), ("n2", 2)] {
        assert_eq!(join(name, key, &token, 110, false), Ok(()));
    }
    // One that is there keeps its key. One that has it comes back at any time.
    assert!(matches!(join("n1", 3, &token, 110, true), Err(Unwelcome::NotNow(_))));
    assert!(trust.knows("n1", &[1; 32]));
    assert_eq!(join("n1", 1, &token, 110, true), Ok(()));
    // One that is gone loses it, to this secret alone.
    let other = Token { secret: [0; 16], ..token.clone() };
    for wrong in [&other, &endless] {
        assert!(matches!(join("n1", 3, wrong, 110, false), Err(Unwelcome::Never(_))));
    }
    assert_eq!(join("n1", 3, &token, 110, false), Ok(()));
    assert!(trust.knows("n1", &[3; 32]) && !trust.knows("n1", &[1; 32]));
    // Other names, other parts, and too late.
    assert!(matches!(join("n4", 4, &token, 110, false), Err(Unwelcome::Never(_))));
    assert!(matches!(join("n3", 4, &token, 160, false), Err(Unwelcome::Never(_))));
    let login = trust.enrol("n3", &[4; 32], (&token.secret, Wish::Login), 110, false);
    assert!(matches!(login, Err(Unwelcome::Never(_))));
    trust.invite("n3", Part::Login(Login::default()), 100, 60).unwrap();
    let names = |now_s| trust.shared(now_s).unwrap().into_iter().map(|one| one.names).collect::<Vec<_>>();
    assert_eq!((names(110), names(160)), (vec!["m1".to_owned(), "n[1-3]".to_owned()], vec!["m1".to_owned()]));
    // An invitation for one of the names leaves it alone, and so does the end of one key.
    assert!(trust.revoke("n1").unwrap() && !trust.knows("n1", &[3; 32]));
    assert_eq!(join("n1", 5, &token, 110, false), Ok(()));
    assert_eq!(trust.revoke_shared(&["n2".into(), "x".into()]).unwrap(), ["n[1-3]"]);
    assert!(trust.revoke_shared(&["n2".into()]).unwrap().is_empty());
    assert!(matches!(join("n2", 6, &token, 110, false), Err(Unwelcome::Never(_))));
    assert!(trust.knows("n2", &[2; 32]), "what joined stays");
    assert!(trust.share("n[1-2],../x", 100, None).is_err());
}
