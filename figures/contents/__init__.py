"""What figures and tables are made of: nodes of the graph, and how pictures and numbers come from their results."""
