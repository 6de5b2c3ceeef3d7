//! Access lists and what else decides about packets.

use vpp_config::messages::abf::{
    AbfItfAttach, AbfItfAttachAddDel, AbfItfAttachDump, AbfPolicy, AbfPolicyAddDel, AbfPolicyDump,
};
use vpp_config::messages::acl::{
    AclAddReplace, AclDel, AclDump, AclInterfaceListDump, AclInterfaceSetAclList,
    AclPluginGetConnTableMaxEntries, AclPluginGetVersion, AclStatsIntfCountersEnable,
};
use vpp_config::messages::classify::{
    ClassifyAddDelSession, ClassifyAddDelTable, ClassifySessionDump, ClassifyTableByInterface,
    ClassifyTableIdsGet, ClassifyTableInfo, InputAclSetInterface,
};
use vpp_config::messages::feature::{FeatureEnableDisable, FeatureIsEnabled};
use vpp_config::messages::interface::CreateLoopbackInstance;
use vpp_config::messages::policer::{
    PolicerAdd, PolicerConfig, PolicerDel, PolicerDumpV2, PolicerInputV2,
};
use vpp_config::messages::punt::{Punt, PuntReason, PuntReasonDump, SetPunt};
use vpp_config::messages::sr::{
    SidList, SrBehavior, SrLocalsidAddDel, SrLocalsidsDump, SrPoliciesV2Dump, SrPolicyAddV2,
    SrSetEncapSource, SrSteer, SrSteeringAddDel, SrSteeringPolDump,
};
use vpp_config::messages::urpf::{UrpfInterfaceDump, UrpfMode, UrpfUpdateV2};
use vpp_config::types::{
    AclAction, AclRule, AddressFamily, FibPath, InterfaceIndex, IpProto, Prefix,
};
use vpp_config::{Client, Retval};

use crate::instance::start;

async fn loopback(client: &Client) -> InterfaceIndex {
    let made = client.call(&CreateLoopbackInstance::default()).await;
    made.unwrap().sw_if_index
}

fn prefix(text: &str) -> Prefix {
    text.parse::<ipnet::IpNet>().unwrap().into()
}

fn rule() -> AclRule {
    AclRule {
        is_permit: AclAction::PermitReflect,
        src_prefix: prefix("2001:db8::1/128"),
        dst_prefix: prefix("::/0"),
        proto: IpProto::Tcp,
        dstport_or_icmpcode_first: 443,
        dstport_or_icmpcode_last: 444,
        ..AclRule::default()
    }
}

async fn list(client: &Client, r: Vec<AclRule>) -> u32 {
    let add = AclAddReplace {
        tag: "causeway:1".try_into().unwrap(),
        r,
        ..AclAddReplace::default()
    };
    client.call(&add).await.unwrap().acl_index
}

#[tokio::test]
async fn access_lists_are_read_as_they_were_written() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let version = client.call(&AclPluginGetVersion {}).await.unwrap();
    assert!(version.major >= 1);
    let limit = client.call(&AclPluginGetConnTableMaxEntries {}).await;
    assert!(limit.unwrap().conn_table_max_entries > 0);
    let count = AclStatsIntfCountersEnable { enable: true };
    client.call(&count).await.unwrap();

    let sw_if_index = loopback(&client).await;
    let acl_index = list(
        &client,
        vec![
            rule(),
            AclRule {
                is_permit: AclAction::Deny,
                ..rule()
            },
        ],
    )
    .await;
    let apply = AclInterfaceSetAclList {
        sw_if_index,
        n_input: 1,
        acls: vec![acl_index],
    };
    client.call(&apply).await.unwrap();
    let applied = client
        .dump(&AclInterfaceListDump { sw_if_index })
        .await
        .unwrap();
    assert_eq!(
        (applied[0].n_input, &applied[0].acls),
        (1, &vec![acl_index])
    );
    let all = client.dump(&AclDump::default()).await.unwrap();
    assert_eq!(all[0].tag, "causeway:1");
    assert_eq!(all[0].r[0], rule());
    assert_eq!(all[0].r.len(), 2);

    let in_use = client.call(&AclDel { acl_index }).await.unwrap_err();
    assert_eq!(in_use.retval(), Some(Retval::ACL_IN_USE_INBOUND));
    let nothing = AclInterfaceSetAclList {
        sw_if_index,
        n_input: 0,
        acls: vec![],
    };
    client.call(&nothing).await.unwrap();
    client.call(&AclDel { acl_index }).await.unwrap();
    let again = client.call(&AclDel { acl_index }).await.unwrap_err();
    assert_eq!(again.retval(), Some(Retval::NO_SUCH_ENTRY));
}

#[tokio::test]
async fn source_checks_steering_and_policers_are_read_as_they_were_written() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let sw_if_index = loopback(&client).await;
    let check = UrpfUpdateV2 {
        mode: UrpfMode::Strict,
        af: AddressFamily::Ip6,
        sw_if_index,
        ..UrpfUpdateV2::default()
    };
    client.call(&check).await.unwrap();
    let checks = client
        .dump(&UrpfInterfaceDump { sw_if_index })
        .await
        .unwrap();
    assert!(
        checks
            .iter()
            .any(|check| check.is_input && check.mode == UrpfMode::Strict)
    );

    let acl_index = list(&client, vec![rule()]).await;
    let policy = AbfPolicyAddDel {
        is_add: true,
        policy: AbfPolicy {
            policy_id: 5,
            acl_index,
            paths: vec![FibPath::to("2001:db8::99".parse().unwrap(), sw_if_index)],
        },
    };
    client.call(&policy).await.unwrap();
    let attach = AbfItfAttachAddDel {
        is_add: true,
        attach: AbfItfAttach {
            policy_id: 5,
            sw_if_index,
            priority: 10,
            is_ipv6: true,
        },
    };
    client.call(&attach).await.unwrap();
    let policies = client.dump(&AbfPolicyDump {}).await.unwrap();
    assert_eq!(policies[0].policy.policy_id, 5);
    assert_eq!(policies[0].policy.paths.len(), 1);
    let attached = client.dump(&AbfItfAttachDump {}).await.unwrap();
    assert_eq!(attached[0].attach.priority, 10);

    let add = PolicerAdd {
        name: "causeway-1".try_into().unwrap(),
        infos: PolicerConfig {
            cir: 100_000,
            cb: 100_000,
            ..PolicerConfig::default()
        },
    };
    let policer_index = client.call(&add).await.unwrap().policer_index;
    let apply = PolicerInputV2 {
        policer_index,
        sw_if_index,
        apply: true,
    };
    client.call(&apply).await.unwrap();
    let policers = client.dump(&PolicerDumpV2 { policer_index }).await.unwrap();
    assert_eq!(policers[0].name, "causeway-1");
    assert_eq!(policers[0].cir, 100_000);
    let apply = PolicerInputV2 {
        apply: false,
        ..apply
    };
    client.call(&apply).await.unwrap();
    client.call(&PolicerDel { policer_index }).await.unwrap();
}

#[tokio::test]
async fn classifiers_features_and_punts_are_read_as_they_were_written() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let sw_if_index = loopback(&client).await;
    let mut mask = vec![0; 16];
    mask[8..].fill(0xff);
    let table = ClassifyAddDelTable {
        is_add: true,
        mask: mask.clone(),
        ..ClassifyAddDelTable::default()
    };
    let table_index = client.call(&table).await.unwrap().new_table_index;
    let session = ClassifyAddDelSession {
        is_add: true,
        table_index,
        r#match: vec![7; 16],
        ..ClassifyAddDelSession::default()
    };
    client.call(&session).await.unwrap();
    let hang = InputAclSetInterface {
        sw_if_index,
        ip6_table_index: table_index,
        is_add: true,
        ..InputAclSetInterface::default()
    };
    client.call(&hang).await.unwrap();
    let by_interface = ClassifyTableByInterface { sw_if_index };
    let hung = client.call(&by_interface).await.unwrap();
    assert_eq!(hung.ip6_table_id, table_index);
    let ids = client.call(&ClassifyTableIdsGet {}).await.unwrap().ids;
    assert_eq!(ids, [table_index]);
    let info = ClassifyTableInfo {
        table_id: table_index,
    };
    let info = client.call(&info).await.unwrap();
    assert_eq!((info.active_sessions, info.mask), (1, mask));
    let dump = ClassifySessionDump {
        table_id: table_index,
    };
    let sessions = client.dump(&dump).await.unwrap();
    assert_eq!(sessions.len(), 1);

    let feature = FeatureEnableDisable {
        sw_if_index,
        enable: true,
        arc_name: "ip6-unicast".try_into().unwrap(),
        feature_name: "ip6-full-reassembly-feature".try_into().unwrap(),
    };
    client.call(&feature).await.unwrap();
    if client.has::<FeatureIsEnabled>() {
        let ask = FeatureIsEnabled {
            arc_name: feature.arc_name.clone(),
            feature_name: feature.feature_name.clone(),
            sw_if_index,
        };
        assert!(client.call(&ask).await.unwrap().is_enabled);
    }

    let punt = SetPunt {
        is_add: true,
        punt: Punt::L4 {
            af: AddressFamily::Ip6,
            protocol: IpProto::Udp,
            port: 547,
        },
    };
    client.call(&punt).await.unwrap();
    let reasons = PuntReasonDump {
        reason: PuntReason::default(),
    };
    assert!(!client.dump(&reasons).await.unwrap().is_empty());
}

#[tokio::test]
async fn segments_are_read_as_they_were_written() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let source = SrSetEncapSource {
        encaps_source: "2001:db8:ffff::1".parse().unwrap(),
    };
    client.call(&source).await.unwrap();
    let segment = SrLocalsidAddDel {
        localsid: "2001:db8:1::d6".parse().unwrap(),
        behavior: SrBehavior::Dt6,
        sw_if_index: InterfaceIndex(0),
        ..SrLocalsidAddDel::default()
    };
    client.call(&segment).await.unwrap();
    let segments = client.dump(&SrLocalsidsDump {}).await.unwrap();
    assert_eq!(segments[0].addr, segment.localsid);
    assert_eq!(segments[0].behavior, SrBehavior::Dt6);

    let sids = vec![
        "2001:db8:2::1".parse().unwrap(),
        "2001:db8:2::d6".parse().unwrap(),
    ];
    let policy = SrPolicyAddV2 {
        bsid_addr: "2001:db8:b::1".parse().unwrap(),
        weight: 1,
        is_encap: true,
        sids: SidList {
            weight: 1,
            sids: sids.clone(),
        },
        encap_src: "2001:db8:ffff::1".parse().unwrap(),
        ..SrPolicyAddV2::default()
    };
    client.call(&policy).await.unwrap();
    let policies = client.dump(&SrPoliciesV2Dump {}).await.unwrap();
    assert_eq!(policies[0].bsid, policy.bsid_addr);
    assert_eq!(policies[0].sid_lists[0].sids, sids);
    let steer = SrSteeringAddDel {
        bsid_addr: policy.bsid_addr,
        prefix: prefix("2001:db8:9::/64"),
        traffic_type: SrSteer::Ipv6,
        ..SrSteeringAddDel::default()
    };
    client.call(&steer).await.unwrap();
    let steered = client.dump(&SrSteeringPolDump {}).await.unwrap();
    assert_eq!(steered[0].prefix, steer.prefix);
    assert_eq!(steered[0].bsid, policy.bsid_addr);
}
