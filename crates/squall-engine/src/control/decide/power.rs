//! `scontrol power`.

use squall_model::event::{Event, NodeAdmin};
use squall_model::power::PowerWish;
use squall_model::set::NodeSet;
use squall_model::wire::client::{Answer, Refusal};

use crate::control::controller::Controller;
use crate::control::decide::ask::{Ask, Reply};
use crate::control::decide::reboot::meant;
use crate::control::port::Out;

/// Records what the power of nodes is to be. With `DownForce` their jobs are ended, and they accept jobs afterwards.
pub(crate) fn power(c: &mut Controller, ask: &Ask<'_>, nodes: &str, wish: PowerWish, out: &mut Out) -> Reply {
    let nodes = meant(c, nodes)?;
    if !c.state.runs_programs() {
        return Err(Refusal::NotSupported("the power of nodes before `scontrol upgrade`".into()));
    }
    let power = &c.state.config.power;
    let (path, key, program) = match wish {
        PowerWish::Up => (&power.resume_program, "resume_program", "ResumeProgram"),
        _ => (&power.suspend_program, "suspend_program", "SuspendProgram"),
    };
    if path.is_empty() {
        return Err(Refusal::NotSupported(format!("{program} is not configured: set {key} in [power]")));
    }
    let by = ask.who.owner.uid;
    if wish == PowerWish::DownForce {
        let closed = |id| c.state.node(id).is_some_and(|node| node.admin != NodeAdmin::Resume);
        let closed: NodeSet = nodes.iter().filter(|id| closed(*id)).collect();
        if !closed.is_empty() {
            c.commit(ask.now, Event::NodesSet { nodes: closed, admin: NodeAdmin::Resume, reason: None, by }, out);
        }
    }
    c.commit(ask.now, Event::PowerWished { nodes, wish, by }, out);
    Ok(Some(Answer::Done))
}
