use super::*;

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn settings(operator_prefix: &str, node_block: &str) -> PlanSettings {
    PlanSettings {
        operator_prefix: net(operator_prefix),
        node_block: net(node_block),
        prefix_pools: Vec::new(),
        exclusions: Vec::new(),
        quarantine: DEFAULT_QUARANTINE,
        key: BlockKey::new([1; 16]),
    }
}

fn with_prefixes(block: &str, length: u8) -> PlanSettings {
    PlanSettings {
        prefix_pools: vec![PrefixPool {
            block: net(block),
            length,
        }],
        ..settings("2001:db8::/32", "2001:db8::/64")
    }
}

#[test]
fn blocks_are_numbered_parts_of_the_operator_prefix() {
    let block = |prefix, length, index| node_block(net(prefix), length, index);
    assert_eq!(block("2001:db8::/48", 64, 0), Ok(net("2001:db8::/64")));
    assert_eq!(
        block("2001:db8::/48", 64, 65_535),
        Ok(net("2001:db8:0:ffff::/64"))
    );
    assert_eq!(
        block("2001:db8::/48", 64, 65_536).unwrap_err().to_string(),
        "the operator prefix 2001:db8::/48 has no block number 65536 of /64"
    );
    assert_eq!(block("2001:db8::/80", 64, 0), Ok(net("2001:db8::/80")));
    assert!(block("2001:db8::/80", 64, 1).is_err());
    assert_eq!(
        block("::/0", 128, u128::MAX).unwrap().network().to_bits(),
        u128::MAX
    );
    assert!(block("2001:db8::/48", 129, 0).is_err());
}

#[test]
fn blocks_lie_in_the_operator_prefix() {
    assert!(Plan::new(settings("2001:db8::/32", "2001:db8::/64")).is_ok());
    assert!(Plan::new(settings("2001:db8::/64", "2001:db8::/64")).is_ok());
    let error = Plan::new(settings("2001:db8::/32", "2001:db9::/64")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the block 2001:db9::/64 does not lie in the operator prefix 2001:db8::/32"
    );
    assert!(Plan::new(settings("2001:db8::/64", "2001:db8::/48")).is_err());
}

#[test]
fn blocks_lie_in_usable_space() {
    for block in [
        "fe80::/64",
        "::/64",
        "ff00::/16",
        "64:ff9b::/64",
        "2002:a00::/64",
        "2001::/64",
        "2000::/3",
        "::/0",
    ] {
        let result = Plan::new(settings(block, block));
        assert!(
            matches!(result, Err(PlanError::Unusable { .. })),
            "{block}: {result:?}"
        );
    }
    for block in ["fd00:1::/64", "2600::/64", "2001:db8::/40"] {
        assert!(Plan::new(settings(block, block)).is_ok(), "{block}");
    }
}

#[test]
fn prefixes_have_a_length_of_64_to_127_and_a_block_of_their_own() {
    assert!(Plan::new(with_prefixes("2001:db8:1::/48", 64)).is_ok());
    assert!(Plan::new(with_prefixes("2001:db8:1::/120", 127)).is_ok());
    let error = Plan::new(with_prefixes("2001:db8:1::/72", 64)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "prefixes of /64 cannot come from 2001:db8:1::/72: use /72 to /127"
    );
    for (block, length) in [("2001:db8:1::/48", 63), ("2001:db8:1::/48", 128)] {
        let result = Plan::new(with_prefixes(block, length));
        assert!(
            matches!(result, Err(PlanError::PrefixLength { .. })),
            "{length}"
        );
    }
    for block in ["2001:db8::/64", "2001:db8::/48", "2001:db8::/72"] {
        let result = Plan::new(with_prefixes(block, 80));
        assert!(matches!(result, Err(PlanError::Overlap { .. })), "{block}");
    }
}

#[test]
fn exclusions_are_bounded() {
    let mut plan = settings("2001:db8::/32", "2001:db8::/64");
    plan.exclusions = vec![net("2001:db8::/65")];
    assert!(matches!(
        Plan::new(plan.clone()),
        Err(PlanError::ExclusionsTooLarge { .. })
    ));
    plan.exclusions = vec![net("2001:db8::/66")];
    assert!(Plan::new(plan.clone()).is_ok());
    plan.exclusions = vec![net("2001:db8::1/128"); MAX_EXCLUSIONS + 1];
    assert!(matches!(
        Plan::new(plan),
        Err(PlanError::TooManyExclusions { .. })
    ));
}

#[test]
fn well_known_addresses_are_kept_back() {
    let plan = Plan::new(settings("2001:db8::/32", "2001:db8::/64")).unwrap();
    let pool = &plan.pools()[0];
    for (address, kept_back) in [
        ("2001:db8::", true),
        ("2001:db8::1", false),
        ("2001:db8::fdff:ffff:ffff:ff7f", false),
        ("2001:db8::fdff:ffff:ffff:ff80", true),
        ("2001:db8::fdff:ffff:ffff:ffff", true),
        ("2001:db8::5efe:a00:1", true),
        ("2001:db8::200:5efe:a00:1", true),
    ] {
        let found = pool.exclusion_of(address.parse().unwrap());
        assert_eq!(found.is_some(), kept_back, "{address}");
    }
}

#[test]
fn the_resolver_is_kept_back_in_its_own_prefix() {
    let plan = Plan::new(settings("fd63:6175:7365::/64", "fd63:6175:7365::/64")).unwrap();
    assert!(plan.pools()[0].exclusion_of(RESOLVER).is_some());
    // The translation prefix is small beside a /48, and all of its own /96.
    assert!(Plan::new(settings("fd63:6175:7365::/48", "fd63:6175:7365::/48")).is_ok());
    assert!(Plan::new(settings("fd63:6175:7365:64::/96", "fd63:6175:7365:64::/96")).is_err());
}
