"""What is read from several tables: shapes, contrasts, components, correlations."""
