use roost_replay::Generator;

use super::*;

#[test]
fn sessions_of_one_application_share_their_system_prompt() {
    let trace = Generator { sessions: 8, applications: 2, ..Generator::default() }.trace();
    let system = system_blocks(&trace);
    for (number, session) in trace.sessions.iter().enumerate().filter(|(_, session)| session.origin.is_none())
    {
        let blocks = system[number];
        assert!(blocks < new_blocks(&session.turns[0]), "{}: {blocks}", session.id);
    }
    assert!(system.iter().any(|blocks| *blocks > 100), "{system:?}");
}
