//! What comes in through the control socket, from configuration files and from scenarios.

use lnet_admin::{FrameDecoder, REQUEST_MAX, decode_reply, decode_request, encode_request};
use lnet_config::{
    Config, ModuleParameters, NETWORKS_CHARS_MAX, ROUTES_MAX, parse_cpts, parse_interfaces,
    parse_ip2nets, parse_networks, parse_nid_list, parse_number, parse_routes,
};
use lnet_types::{CptTable, CpuPattern};

/// Frames of the control socket, cut anywhere: bounded memory, and a request that is understood is
/// the same after another round.
pub fn admin_frames(input: &[u8]) {
    let mut decoder = FrameDecoder::new(REQUEST_MAX);
    for piece in input.chunks(7) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => request(&frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    request(input);
    let _ = decode_reply(input);
}

fn request(frame: &[u8]) {
    if let Ok((id, request)) = decode_request(frame)
        && let Ok(bytes) = encode_request(id, &request)
    {
        // Four bytes of length go before the frame.
        assert_eq!(decode_request(&bytes[4..]), Ok((id, request)));
    }
}

/// A YAML configuration: an error names its place; what is understood prints as YAML that means the
/// same.
pub fn config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Config::from_yaml(&text) {
        Ok(config) => {
            let again = Config::from_yaml(&config.to_yaml()).expect("an export can be imported");
            assert_eq!(again.to_yaml(), config.to_yaml());
            let _ = (config.add_steps(), config.del_steps());
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// The short texts of command lines.
pub fn words(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let _ = parse_cpts(&text);
    let _ = parse_interfaces(&text);
    let _ = parse_number(&text);
    let npartitions = u32::from(input.first().copied().unwrap_or(0));
    if let Ok(pattern) = CpuPattern::parse(&text, npartitions) {
        assert_eq!(
            CpuPattern::parse(&pattern.to_string(), pattern.npartitions()),
            Ok(pattern.clone())
        );
        let machine = (0..64).map(|cpu| (cpu, cpu / 16)).collect();
        if let Ok(table) = CptTable::new(&pattern, &machine) {
            let all: usize = table.iter().map(|cpt| cpt.cpus.len()).sum();
            assert!((1..=64).contains(&all), "no CPU is in two partitions");
        }
    }
    if let Ok(nids) = parse_nid_list(&text) {
        assert!(nids.len() <= lnet_config::NID_LIST_MAX);
    }
}

/// Module parameters of kernel nodes: networks are printed as they are read, and what a file asks for is
/// a configuration.
pub fn legacy(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(nets) = parse_networks(&text) {
        let shown: Vec<String> = nets.iter().map(ToString::to_string).collect();
        let shown = shown.join(",");
        if shown.chars().count() <= NETWORKS_CHARS_MAX {
            assert_eq!(parse_networks(&shown), Ok(nets));
        }
    }
    assert!(parse_routes(&text).map_or(0, |routes| routes.len()) <= ROUTES_MAX);
    if let Ok(rules) = parse_ip2nets(&text) {
        let _ = rules.choose(&[]);
    }
    if let Ok(all) = ModuleParameters::from_modprobe(&text) {
        let yaml = all.to_config().to_yaml();
        Config::from_yaml(&yaml).expect("what parameters ask for can be imported");
    }
}

/// A scenario: it names only what is there, and its errors name a line of it.
pub fn scenario(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match lnet_scenario::parse("fuzz", &text) {
        Ok(scenario) => {
            let world = &scenario.world;
            for workload in &scenario.workload {
                assert!(workload.from.nodes().iter().all(|n| world.node(*n).is_some()));
                assert!(workload.to.rails(world).iter().all(|r| world.rail(*r).is_some()));
            }
        }
        Err(e) => assert!(e.line as usize <= text.matches('\n').count() + 1, "{e}"),
    }
}
