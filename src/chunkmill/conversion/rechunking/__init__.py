"""Give arrays other chunks: strategies, costs, intermediate files, the tasks of each stage."""
