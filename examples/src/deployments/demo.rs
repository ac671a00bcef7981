//! The demonstration: real processes, killed in each failure window.
//!
//! Each line of a check puts what the provider really holds, read from the provider's own
//! log, beside what the tool says.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    lab::Lab,
    provider::switches::{Behaviour, Switches},
    tools::Point,
};
use crate::support::{
    Outcome,
    client::{Server, is_under_way},
    report::{Report, expect, expect_status, observe, text},
};

/// The tools, and what their provider is able to do about a lost answer.
const TOOLS: [&str; 3] = [BY_KEY, BY_REFERENCE, UNAIDED];
const BY_KEY: &str = "start_deployment";
const BY_REFERENCE: &str = "start_deployment_by_reference";
const UNAIDED: &str = "start_deployment_unaided";

/// Runs all checks, in temporary folders.
///
/// # Errors
///
/// The first check that failed, by its name.
pub async fn run() -> Outcome {
    println!("Servers and providers in processes of their own, killed and started again:\n");
    let report = Report::default();
    report.check("before dispatch", before_dispatch()).await?;
    report.check("lost response", lost_response()).await?;
    report.check("lost receipt", lost_receipt()).await?;
    report.check("lost answer", lost_answer()).await?;
    report.check("cancellation", cancellation()).await?;
    report.check("one request", one_request()).await?;
    report.check("outbox", outbox()).await?;
    report.check("closed window", closed_window()).await?;
    report.finish();
    Ok(())
}

/// Each tool deploys a service of its own name, so that the log tells whose it is.
fn arguments(tool: &str) -> Value {
    order(&format!("key-of-{tool}"), tool)
}

fn order(key: &str, service: &str) -> Value {
    json!({ "idempotency_key": key, "service": service, "image": "web:7" })
}

async fn send_all(server: &mut Server) -> Outcome<Vec<u64>> {
    let mut sent = Vec::new();
    for tool in TOOLS {
        sent.push(server.send(tool, &arguments(tool)).await?);
    }
    Ok(sent)
}

/// The killed server's successor is called again; then both sides are compared.
async fn compare_all(lab: &Lab, unaided: (&str, usize)) -> Outcome {
    let mut server = lab.server().await?;
    for tool in TOOLS {
        let reply = server.recover(tool, &arguments(tool)).await?;
        let (status, held) = match tool {
            UNAIDED => unaided,
            _ => ("succeeded", 1),
        };
        compare(lab, tool, &reply, status, held)?;
    }
    let reply = server.call(UNAIDED, &arguments(UNAIDED)).await?;
    if unaided.0 == "outcome_unknown" {
        observe("its next action", text(&reply, "next_action"));
    }
    server.kill().await?;
    Ok(())
}

fn compare(lab: &Lab, service: &str, reply: &Value, status: &str, count: usize) -> Outcome {
    let held = lab.held(service)?;
    let told = &reply["result"]["deployment_id"];
    let told = told.as_str().map_or(String::new(), |id| format!(" {id}"));
    let holds = if held.is_empty() {
        "nothing".to_owned()
    } else {
        held.join(", ")
    };
    observe(
        service,
        format_args!(
            "the provider holds {holds}; the tool says {}{told}",
            text(reply, "status")
        ),
    );
    expect_status(reply, status)?;
    expect(
        held.len() == count,
        &format!("{count} deployments"),
        &held.len(),
    )?;
    if status == "succeeded" {
        let same = held.first().map(String::as_str) == reply["result"]["deployment_id"].as_str();
        expect(same, "the deployment that the provider holds", reply)?;
    }
    Ok(())
}

async fn before_dispatch() -> Outcome {
    let lab = Lab::new().await?;
    let mut server = lab.halting_server(Point::BeforeSending).await?;
    send_all(&mut server).await?;
    for _ in TOOLS {
        server.says(Point::BeforeSending.says()).await?;
    }
    server.kill().await?;
    expect(lab.requests()? == 0, "no request", &lab.requests()?)?;
    observe(
        "the server was killed",
        "the attempts had begun, nothing was sent",
    );
    compare_all(&lab, ("outcome_unknown", 0)).await?;
    lab.end().await
}

async fn lost_response() -> Outcome {
    let lab = Lab::new().await?;
    lab.script(&[Behaviour::Hold; TOOLS.len()]).await?;
    let mut server = lab.server().await?;
    send_all(&mut server).await?;
    lab.created(TOOLS.len()).await?;
    server.kill().await?;
    observe(
        "the server was killed",
        "the provider had accepted, and had not answered",
    );
    compare_all(&lab, ("outcome_unknown", 1)).await?;
    lab.end().await
}

async fn lost_receipt() -> Outcome {
    let lab = Lab::new().await?;
    let mut server = lab.halting_server(Point::AfterAnswer).await?;
    send_all(&mut server).await?;
    for _ in TOOLS {
        server.says(Point::AfterAnswer.says()).await?;
    }
    server.kill().await?;
    observe(
        "the server was killed",
        "the provider had answered, no receipt was written",
    );
    compare_all(&lab, ("outcome_unknown", 1)).await?;
    lab.end().await
}

async fn lost_answer() -> Outcome {
    let lab = Lab::new().await?;
    let mut server = lab.server().await?;
    for id in send_all(&mut server).await? {
        // What arrives here is what the agent never saw.
        let reply = server.receive(id).await?;
        let id = text(&reply, "operation_id").to_owned();
        server.follow(&id, |reply| !is_under_way(reply)).await?;
    }
    server.kill().await?;
    observe(
        "the server was killed",
        "the receipts were written, the answers were lost",
    );
    compare_all(&lab, ("succeeded", 1)).await?;
    expect(lab.requests()? == 3, "three requests", &lab.requests()?)?;
    lab.end().await
}

async fn cancellation() -> Outcome {
    let lab = Lab::new().await?;
    let mut server = lab.server().await?;
    lab.script(&[Behaviour::TooMany { seconds: 6 }, Behaviour::Hold])
        .await?;

    let (waiting, sent) = (order("waiting", "waiting"), order("sent", "sent"));
    let reply = server.call(BY_KEY, &waiting).await?;
    let id = json!({ "operation_id": reply["operation_id"] });
    let reply = server.call("cancel_operation", &id).await?;
    compare(&lab, "waiting", &reply, "cancelled", 0)?;
    let again = server.call(BY_KEY, &waiting).await?;
    expect_status(&again, "cancelled")?;

    let reply = server.call(BY_KEY, &sent).await?;
    lab.created(1).await?;
    let id = json!({ "operation_id": reply["operation_id"] });
    let asked = server.call("cancel_operation", &id).await?;
    compare(&lab, "sent", &asked, "cancel_requested", 1)?;
    lab.release().await?;
    let id = text(&reply, "operation_id").to_owned();
    let reply = server.follow(&id, |reply| !is_under_way(reply)).await?;
    compare(&lab, "sent", &reply, "succeeded", 1)?;

    let id = json!({ "operation_id": id });
    let reply = server.call("cancel_operation", &id).await?;
    compare(&lab, "sent", &reply, "succeeded", 1)?;
    server.kill().await?;
    lab.end().await
}

async fn one_request() -> Outcome {
    let lab = Lab::new().await?;
    lab.script(&[Behaviour::Hold]).await?;
    let mut server = lab.server().await?;
    let mut sent = Vec::new();
    for _ in 0..8 {
        sent.push(server.send(BY_KEY, &order("one", "one")).await?);
    }
    lab.received(1).await?;
    let other = json!({ "idempotency_key": "one", "service": "one", "image": "web:8" });
    let conflict = server.call(BY_KEY, &other).await?;
    expect(
        text(&conflict["error"], "code") == "payload_conflict",
        "a conflict",
        &conflict,
    )?;
    let mut id = String::new();
    for sent in sent {
        let reply = server.receive(sent).await?;
        expect_status(&reply, "running")?;
        let told = text(&reply, "operation_id");
        expect(id.is_empty() || id == told, "one operation", &reply)?;
        told.clone_into(&mut id);
    }
    lab.release().await?;
    let reply = server.follow(&id, |reply| !is_under_way(reply)).await?;
    observe(
        "eight callers, a slow provider",
        "one operation; other arguments are a conflict",
    );
    compare(&lab, "one", &reply, "succeeded", 1)?;
    expect(lab.requests()? == 1, "one request", &lab.requests()?)?;
    server.kill().await?;
    lab.end().await
}

async fn outbox() -> Outcome {
    let lab = Lab::new().await?;
    let mut server = lab.halting_server(Point::BeforeSending).await?;
    let released = server
        .call("release_service", &order("release", "shop"))
        .await?;
    expect_status(&released, "succeeded")?;
    server.kill().await?;
    expect(lab.requests()? == 0, "no request", &lab.requests()?)?;
    observe(
        "the server was killed",
        "the release was committed, its deployment not sent",
    );

    let mut server = lab.server().await?;
    let again = server
        .call("release_service", &order("release", "shop"))
        .await?;
    expect(again["replayed"] == true, "a replay", &again)?;
    let id = text(&released["result"], "deployment_operation_id").to_owned();
    let done = |reply: &Value| text(reply, "status") == "succeeded";
    let reply = server.follow(&id, done).await?;
    compare(&lab, "shop", &reply, "succeeded", 1)?;
    server.kill().await?;
    lab.end().await
}

async fn closed_window() -> Outcome {
    let lab = Lab::new().await?;
    lab.script(&[Behaviour::Hold]).await?;
    let mut server = lab.server().await?;
    server.send(BY_KEY, &order("old", "old")).await?;
    lab.created(1).await?;
    server.kill().await?;
    let forgetful = Switches {
        remembers_ms: 0,
        ..Switches::default()
    };
    lab.switches(forgetful).await?;
    let mut server = lab.later_server(Duration::from_hours(25)).await?;
    let reply = server.recover(BY_KEY, &order("old", "old")).await?;
    observe("a day later", "the provider has forgotten the key");
    compare(&lab, "old", &reply, "outcome_unknown", 1)?;
    observe("its next action", text(&reply, "next_action"));
    expect(lab.requests()? == 1, "no further request", &lab.requests()?)?;
    server.kill().await?;
    lab.end().await
}
