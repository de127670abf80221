"""What two sides share: the layout of every artefact, with numpy and pyarrow only.

One module an artefact: ``sparse`` (vectors in memory), ``card`` (what an encoder is), ``bundle`` (an exported encoder),
``table`` (the sparse table), ``index`` (shards, versions, publications). ``digest`` names them.
"""
