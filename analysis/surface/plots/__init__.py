"""Pictures, pages and ParaView files of surfaces; nothing here computes."""
