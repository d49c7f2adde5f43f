//! Tests of the configuration as a whole.

use super::{Config, NodeLostAction, RoutePolicy};
use crate::policy::EnforcePartLimits;
use crate::wire::fabric::Window;

#[test]
fn the_trees_words_are_slurms() {
    let config = Config::from_toml(
        "TreeWidth = 50\nMsgAggregationParams = \"WindowMsgs=10,WindowTime=200\"\nRoutePlugin = \"route/topology\"\n\
         [[switches]]\nSwitchName = \"s1\"\nNodes = \"n[1-4]\"\n",
    );
    let config = config.expect("these are the words");
    assert_eq!((config.tree_width, config.route_plugin), (50, RoutePolicy::Topology));
    assert_eq!(config.msg_aggregation_params.0, Window { messages: 10, time_ms: 200 });
    let again = Config::from_toml(&config.to_toml().expect("it is text")).expect("what is written is read");
    assert_eq!(again, config);
}

#[test]
fn a2_timeouts_that_healthy_nodes_miss_are_refused() {
    let refused = |text: &str| Config::from_toml(text).expect_err(text);
    for short in [0, 2] {
        let text = refused(&format!("node_timeout_s = {short}\nnode_lost_s = 300"));
        assert!(
            text.starts_with(&format!("node_timeout_s = {short}: use 3 or more, as less takes down healthy nodes"))
        );
    }
    assert!(refused("SlurmdTimeout = 1\nnode_lost_s = 12").contains("use 3 or more"));
    assert!(refused("[health]\nresume_timeout_s = 0\n").starts_with("[health] resume_timeout_s: 0: use 1 or more"));
    assert!(refused("node_timeout_s = 60\nnode_lost_s = 59").contains("use node_timeout_s (60) or more"));
    assert!(refused("node_lost_action = \"reboot\"").contains("`wait` or `requeue`"));
    let config = Config::from_toml("node_timeout_s = 30\nnode_lost_s = 30\nNodeLostAction = \"requeue\"");
    assert_eq!(config.map(|config| config.node_lost_action), Ok(NodeLostAction::Requeue));
    assert_eq!(Config::default().node_lost_action, NodeLostAction::Wait);
}

#[test]
fn keys_that_were_added_later_are_journaled_and_shown() {
    let text = "Licenses = \"foo:10\"\nEnforcePartLimits = \"all\"\n";
    let config = Config::from_toml(text).expect("these are the words");
    assert_eq!(config.enforce_part_limits, EnforcePartLimits::All);
    let wrong = Config::from_toml("EnforcePartLimits = \"some\"\n").expect_err("it is none");
    assert!(wrong.contains("NO, ANY or ALL"), "{wrong}");
    let bytes = crate::encoding::to_vec(&(&config, 7_u8));
    assert_eq!(crate::encoding::from_slice(&bytes), Ok((config, 7_u8)));
}

#[test]
fn what_is_not_said_of_aggregation_keeps_its_default() {
    let window = |text: &str| {
        let toml = format!("msg_aggregation_params = \"{text}\"");
        Config::from_toml(&toml).map(|config| config.msg_aggregation_params.0)
    };
    assert_eq!(window(""), Ok(Window::default()));
    assert_eq!(window("windowmsgs=1"), Ok(Window { messages: 1, ..Window::default() }));
    assert_eq!(window("WindowTime=7"), Ok(Window { time_ms: 7, ..Window::default() }));
    for wrong in ["WindowMsgs", "WindowMsgs=0", "WindowMsgs=-1", "Window=3", "10"] {
        assert!(window(wrong).is_err(), "{wrong}");
    }
}
