"""stub"""
def run_where_needed(ctx, nodes): raise NotImplementedError
