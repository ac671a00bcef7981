//! What a toolbox says, in the protocol's own types.

use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, Tool, ToolAnnotations},
};

use crate::reply::{Reply, describe::ToolDescription};

/// A tool's entry in `tools/list`.
pub(super) fn listing(tool: &ToolDescription) -> Tool {
    let hints = tool.annotations;
    let annotations = ToolAnnotations::new()
        .read_only(hints.read_only)
        .destructive(hints.destructive)
        .idempotent(hints.idempotent)
        .open_world(hints.open_world);
    let listing = Tool::new(
        tool.name.clone(),
        tool.description.clone(),
        tool.input_schema.clone(),
    )
    .with_raw_output_schema(tool.output_schema.clone().into())
    .with_annotations(annotations);
    match &tool.title {
        Some(title) => listing.with_title(title),
        None => listing,
    }
}

/// The answer to `tools/call`: the reply for programs, the same as text for clients that
/// know no structured content, and a sentence for models.
pub(super) fn result(reply: &Reply) -> Result<CallToolResult, ErrorData> {
    let json = reply.to_json();
    let structured = serde_json::from_str(&json).map_err(|_| {
        // The error's text could quote the result.
        ErrorData::internal_error(
            "the reply can't be read as JSON; repeat the call with the same idempotency_key",
            None,
        )
    })?;
    let content = vec![
        ContentBlock::text(json),
        ContentBlock::text(reply.explanation()),
    ];
    let mut result = if reply.is_error() {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.structured_content = Some(structured);
    Ok(result)
}
