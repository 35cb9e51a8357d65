//! `service`: queues of requests on their portals. `fault rpc`: requests, replies and bulk data that
//! get lost, and requests that wait, on purpose.

use lnet_admin::{AdminError, Reply, RpcDelay, RpcFaultDel, RpcFaults, RpcLose, RpcPart};
use lnet_types::Errno;
use lustre_rt::{
    KvOperation, Lose, LoseId, Losing, NrsError, OPCODES, Opcode, Part, PolicyKind, Ptlrpc, Rpc,
    ServiceId,
};

use super::{Control, stopped};
use crate::rpc_views as views;

impl Control {
    pub(super) fn service_show(&self) -> Result<Reply, AdminError> {
        let services = self.look(Vec::new(), |node| {
            node.inspect(|ptlrpc, now| {
                ptlrpc.service_views().iter().map(|view| views::service(view, now)).collect()
            })
        })?;
        Ok(Reply::Services(services))
    }

    pub(super) fn rpc_lose(&self, rule: &RpcLose) -> Result<Reply, AdminError> {
        let opcode = rule.opcode.as_deref().map(opcode).transpose()?;
        let part = match rule.part {
            RpcPart::Request => Part::Request,
            RpcPart::Reply => Part::Reply,
            RpcPart::Bulk => Part::Bulk,
            RpcPart::Early => Part::Early,
        };
        let lose = Lose { opcode, part, count: rule.count };
        let added = self.rpc_or_start()?.node.with(move |rpc| rpc.lose(lose));
        let refused = |errno| {
            let why = match errno {
                Errno::EINVAL => format!("count {}: expected 1 or more", rule.count),
                _ => "too many rules: the limit is 64".to_owned(),
            };
            AdminError::errno(errno).because(why)
        };
        added.map_err(|e| stopped(&e))?.map(|_| Reply::Done).map_err(refused)
    }

    pub(super) fn rpc_delay(&self, delay: RpcDelay) -> Result<Reply, AdminError> {
        if delay.percent > 100 {
            let why = format!("share {}%: expected 0 to 100%", delay.percent);
            return Err(AdminError::errno(Errno::EINVAL).because(why));
        }
        let rpc = self.rpc_or_start()?;
        let found = self.service_named(&delay.service)?;
        let set = rpc.node.with(move |rpc| set_delay(rpc, found, &delay));
        set.map_err(|e| stopped(&e))?.map(|()| Reply::Done).map_err(|e| refused(&e))
    }

    pub(super) fn rpc_fault_del(&self, del: RpcFaultDel) -> Result<Reply, AdminError> {
        let Some(rpc) = self.rpc()? else { return Err(no_fault(&del)) };
        let meant = del.clone();
        let ended = rpc.node.inspect(move |ptlrpc, _| named(ptlrpc, &meant));
        let (rules, services) = ended.map_err(|e| stopped(&e))?;
        if rules.is_empty() && services.is_empty() {
            return Err(no_fault(&del));
        }
        let ended = rpc.node.with(move |rpc| {
            for rule in rules {
                rpc.mend(rule);
            }
            services.into_iter().try_for_each(|id| rpc.set_parameter(id, "nrs_policies", "fifo"))
        });
        ended.map_err(|e| stopped(&e))?.map(|()| Reply::Done).map_err(|e| refused(&e))
    }

    pub(super) fn rpc_fault_show(&self) -> Result<Reply, AdminError> {
        let none = RpcFaults { lose: Vec::new(), delay: Vec::new() };
        let faults = self.look(none, |node| node.inspect(|ptlrpc, _| faults(ptlrpc)))?;
        Ok(Reply::RpcFaults(faults))
    }

    /// The service of this name.
    fn service_named(&self, name: &str) -> Result<ServiceId, AdminError> {
        let views = self.look(Vec::new(), |node| Ok(node.services()?.0))?;
        let found = views.iter().find(|view| is_called(&view.name, name)).map(|view| view.id);
        found.ok_or_else(|| {
            let there: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
            let (name, there) = (name.escape_debug(), there.join(", "));
            let expected = match views.as_slice() {
                [] => "no service runs, each begins with the first target of its kind".to_owned(),
                _ => format!("expected one of {there}"),
            };
            AdminError::errno(Errno::ENODEV).because(format_args!("service '{name}': {expected}"))
        })
    }
}

/// Services by other names: those that Lustre's object servers have.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("ost", "target"),
    ("ost_io", "target_io"),
    ("ost_create", "target_create"),
    ("ldlm_canceld", "cancel"),
];

/// Whether a service is meant by a name.
fn is_called(service: &str, name: &str) -> bool {
    service == name || OTHER_NAMES.contains(&(name, service))
}

/// The operations that have names: Lustre's, and those of key-value targets.
fn operations() -> impl Iterator<Item = (&'static str, Opcode)> {
    let lustre = OPCODES.iter().map(|row| (row.name, row.opcode));
    lustre.chain(KvOperation::ALL.map(|operation| (operation.name(), operation.opcode())))
}

/// An operation by its name or number.
fn opcode(word: &str) -> Result<Opcode, AdminError> {
    let named = operations().find(|(name, _)| name.eq_ignore_ascii_case(word));
    let number = || word.parse().ok().map(Opcode);
    named.map(|(_, opcode)| opcode).or_else(number).ok_or_else(|| {
        let nearest = lnet_config::nearest(word, operations().map(|(name, _)| name));
        let hint = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        let word = word.escape_debug();
        AdminError::errno(Errno::EINVAL).because(format_args!(
            "operation '{word}': expected a name such as OST_WRITE or KV_PUT, or a number{hint}"
        ))
    })
}

/// The name of an operation; its number if it has none.
fn name_of(opcode: Opcode) -> String {
    let name = operations().find(|(_, known)| *known == opcode).map(|(name, _)| name.to_owned());
    name.unwrap_or_else(|| opcode.to_string())
}

/// Starts the policy with these numbers, which are within their bounds.
fn set_delay(rpc: &mut Rpc<'_, '_>, id: ServiceId, delay: &RpcDelay) -> Result<(), NrsError> {
    if delay.min_s > delay.max_s {
        let (parameter, other) = ("nrs_delay_min", "nrs_delay_max");
        return Err(NrsError::Crossed { parameter, value: delay.min_s, other, is: delay.max_s });
    }
    rpc.set_parameter(id, "nrs_policies", "delay reg")?;
    // Widened first: neither end crosses the other one, whatever was set before.
    let numbers = [
        ("nrs_delay_min", "delay_min", 0),
        ("nrs_delay_max", "delay_max", delay.max_s),
        ("nrs_delay_min", "delay_min", delay.min_s),
        ("nrs_delay_pct", "delay_pct", delay.percent.into()),
    ];
    numbers
        .iter()
        .try_for_each(|(name, short, n)| rpc.set_parameter(id, name, &format!("reg_{short}:{n}")))
}

/// The rules, and the services with a delay, that are meant.
fn named(ptlrpc: &Ptlrpc, del: &RpcFaultDel) -> (Vec<LoseId>, Vec<ServiceId>) {
    let rules = ptlrpc.losing().iter().map(|losing| losing.id).filter(|id| match del {
        RpcFaultDel::All => true,
        RpcFaultDel::Rule(number) => id.0 == *number,
        RpcFaultDel::Service(_) => false,
    });
    let views = ptlrpc.service_views();
    let delayed = views.iter().filter(|view| view.policies.0 == PolicyKind::Delay);
    let services = delayed.filter(|view| match del {
        RpcFaultDel::All => true,
        RpcFaultDel::Rule(_) => false,
        RpcFaultDel::Service(name) => is_called(&view.name, name),
    });
    (rules.collect(), services.map(|view| view.id).collect())
}

fn faults(ptlrpc: &Ptlrpc) -> RpcFaults {
    let lose = |losing: &Losing| {
        let part = match losing.lose.part {
            Part::Request => RpcPart::Request,
            Part::Reply => RpcPart::Reply,
            Part::Bulk => RpcPart::Bulk,
            Part::Early => RpcPart::Early,
        };
        let opcode = losing.lose.opcode.map(name_of);
        (losing.id.0, RpcLose { opcode, part, count: losing.lose.count }, losing.lost)
    };
    let views = ptlrpc.service_views();
    let delayed = views.iter().filter(|view| view.policies.0 == PolicyKind::Delay);
    let delay = delayed.map(|view| {
        let number = |name: &str| regular(&ptlrpc.parameter(view.id, name).unwrap_or_default());
        RpcDelay {
            service: view.name.clone(),
            min_s: number("nrs_delay_min"),
            max_s: number("nrs_delay_max"),
            percent: u8::try_from(number("nrs_delay_pct")).unwrap_or(100),
        }
    });
    RpcFaults { lose: ptlrpc.losing().iter().map(lose).collect(), delay: delay.collect() }
}

/// The number of the regular head in the text of a parameter.
fn regular(text: &str) -> u16 {
    let word = text.split_ascii_whitespace().find(|word| !word.starts_with("hp_"));
    let number = word.map(|word| word.rsplit(':').next().unwrap_or(word));
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn refused(e: &NrsError) -> AdminError {
    AdminError::errno(e.errno()).because(e)
}

fn no_fault(del: &RpcFaultDel) -> AdminError {
    let why = match del {
        RpcFaultDel::All => "no fault of the request layer is set".to_owned(),
        RpcFaultDel::Rule(number) => format!("rule {number}: not set"),
        RpcFaultDel::Service(name) => format!("service '{}': not delayed", name.escape_debug()),
    };
    AdminError::errno(Errno::ENOENT).because(why)
}
